"""Design spaces: knobs, legality, features and moves, all as arrays."""

from chameleon_core._space.design import Configs, Constraint, DesignSpace, FeatureBlock, Keys
from chameleon_core._space.knobs import (
    Choice,
    Factorization,
    Knob,
    Values,
    flag,
    recorded_features,
)

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
]
