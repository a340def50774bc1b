"""Operators that are computed in types of two bytes, and their specifications in a type."""

import attrs
from chameleon_tvm import api as specs
from chameleon_tvm._operators import convolution_specs

FULL = {"bias": True, "residual": True, "activation": "relu"}
PACKED = {
    "packed": True,
    **dict.fromkeys(("query_layout", "key_layout", "value_layout", "output_layout"), "BSHD"),
}

PRODUCTS = [
    specs.BatchMatmulSpec(a=[2, 5, 33], b=[2, 33, 20]),
    specs.BatchMatmulSpec(a=[3, 9, 16], b=[3, 21, 16], transpose_b=True),
]
ATTENTIONS = [
    specs.AttentionSpec(
        query=[1, 4, 21, 16],
        key=[1, 2, 37, 16],
        value=[1, 2, 37, 24],
        scale=0.3,
        mask=[1, 1, 21, 37],
        key_layout="BSHD",
    ),
    specs.AttentionSpec(
        query=[2, 2, 9, 8], key=[2, 2, 9, 8], value=[2, 2, 9, 8], scale=0.3, causal=True, **PACKED
    ),
    specs.AttentionSpec(
        query=[1, 2, 7, 6],
        key=[1, 2, 70, 6],
        value=[1, 2, 70, 5],
        key_layout="BHDS",
        mask=[1, 1, 1, 70],
    ),
]
CONSTANT = [
    specs.Conv2dSpec(input=[1, 16, 9, 9], filters=24, kernel=3, padding=1, layout="NHWC", **FULL),
    specs.Conv2dSpec(input=[2, 3, 13, 13], filters=20, kernel=5, padding=2, stride=2, **FULL),
    specs.Conv2dSpec(input=[1, 10, 9, 9], filters=48, kernel=3, padding=1, groups=2),
    convolution_specs.Conv1dSpec(input=[1, 21, 30], filters=16, kernel=5, padding=2, layout="NWC"),
    convolution_specs.Conv3dSpec(
        input=[1, 6, 4, 7, 7], filters=24, kernel=3, padding=1, layout="NDHWC", **FULL
    ),
    specs.DepthwiseConv2dSpec(input=[1, 20, 9, 9], kernel=3, padding=1, layout="NHWC", **FULL),
    specs.DenseSpec(input=[3, 33], units=20, **FULL),
    specs.DenseSpec(input=[1, 64], units=48, activation="gelu"),
]
IN_TWO_BYTES = [*PRODUCTS, *ATTENTIONS, *CONSTANT]


def in_type(spec, dtype, written=""):
    """A specification in a dtype, with outputs of the same one or another."""
    return attrs.evolve(spec, dtype=dtype, output_dtype=written or dtype)
