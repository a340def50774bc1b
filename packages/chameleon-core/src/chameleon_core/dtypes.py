"""Names of the types that networks are computed in."""

from __future__ import annotations

FLOAT32, INT8, BFLOAT16, FLOAT16 = "float32", "int8", "bfloat16", "float16"
"""Float32 is that of all networks where nothing names another one."""

INT7 = "int7"
"""``int8`` with weights of 7 bits: pairs of their products with bytes fit into 16 bits."""

LARGEST_WEIGHT = {INT8: 128, INT7: 64}
"""The largest magnitude of weights of these types, which are stored as signed bytes."""

AS_IT_COMES = "as-it-comes"
"""What is asked of something that takes the type it likes."""


def display_name(kind: str) -> str:
    """What a type is called where weights of seven and of eight bits are not told apart.

    Args:
        kind: name of a type.
    """
    return INT8 if kind == INT7 else kind
