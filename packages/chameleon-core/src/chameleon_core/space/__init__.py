"""Design spaces: knobs, legality, features and moves, all as arrays."""

from chameleon_core.space.design import DesignSpace, Keys
from chameleon_core.space.knobs import (
    Choice,
    Factorization,
    Knob,
    Values,
    flag,
    recorded_features,
    recorded_names,
)
from chameleon_core.space.predicates import Configs, Constraint, FeatureBlock

__all__ = [
    "Choice",
    "Configs",
    "Constraint",
    "DesignSpace",
    "Factorization",
    "FeatureBlock",
    "Keys",
    "Knob",
    "Values",
    "flag",
    "recorded_features",
    "recorded_names",
]
