"""Design spaces: knobs, legality, features and moves, all as arrays."""

from chameleon_core._space.design import Configs, Constraint, DesignSpace
from chameleon_core._space.knobs import Choice, Factorization, Knob, Values

__all__ = [
    "Choice",
    "Configs",
    "Constraint",
    "DesignSpace",
    "Factorization",
    "Knob",
    "Values",
]
