"""Design spaces: knobs, legality, features and moves, all as arrays."""

from chameleon_core._space.design import Configs, Constraint, DesignSpace, FeatureBlock
from chameleon_core._space.knobs import (
    Choice,
    Factorization,
    Knob,
    Values,
    recorded_features,
    recorded_names,
)

__all__ = [
    "Choice",
    "Configs",
    "Constraint",
    "DesignSpace",
    "Factorization",
    "FeatureBlock",
    "Knob",
    "Values",
    "recorded_features",
    "recorded_names",
]
