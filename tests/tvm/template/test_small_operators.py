"""Operators of any size have configurations on vectors of any width."""

import numpy as np
from chameleon_tvm import api as specs
from chameleon_tvm._operators import convolution_specs
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from computing import resolved
from hypothesis import example, given, settings
from hypothesis import strategies as st

X86 = ("nehalem", "haswell", "znver4", "sapphirerapids")
TARGETS = [
    *(resolved(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}") for cpu in X86),
    resolved("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"),
]
"""Vectors of 16, 32 and 64 bytes, 16 and 32 registers, with tiles and without."""
TYPES = [
    {},
    {"dtype": "int8", "output_dtype": "uint8"},
    {"dtype": "bfloat16", "output_dtype": "bfloat16"},
    {"dtype": "float16", "output_dtype": "float32"},
]
SPACE = AutoSpace(AutoOptions())
channels = st.integers(1, 40)
sizes = st.integers(3, 19)


@st.composite
def operators(draw):
    """A small operator of any kind in any type."""
    kind = draw(st.sampled_from(["conv", "grouped", "depthwise", "dense", "products", "attention"]))
    types = draw(st.sampled_from(TYPES))
    layout = draw(st.sampled_from(["NHWC", "NCHW"]))
    c, width, kernel = draw(channels), draw(sizes), draw(st.sampled_from([1, 2, 3]))
    stride = draw(st.sampled_from([1, 2]))
    if kind == "conv":
        rank = draw(st.sampled_from([1, 2, 3]))
        spec = {
            1: convolution_specs.Conv1dSpec,
            2: specs.Conv2dSpec,
            3: convolution_specs.Conv3dSpec,
        }[rank]
        axes = {1: "W", 2: "HW", 3: "DHW"}[rank]
        return spec(
            input=[1, c, *(draw(sizes) for _ in axes)],
            filters=draw(channels),
            kernel=kernel,
            stride=stride,
            padding=draw(st.integers(0, kernel - 1)),
            layout=f"N{axes}C" if layout == "NHWC" else f"NC{axes}",
            **types,
        )
    if kind == "grouped":
        groups = draw(st.sampled_from([2, 3, 8]))
        inputs, filters = (groups * draw(st.integers(1, 9)) for _ in range(2))
        return specs.Conv2dSpec(
            input=[1, inputs, width, width],
            filters=filters,
            kernel=kernel,
            groups=groups,
            layout=layout,
            **types,
        )
    if kind == "depthwise":
        return specs.DepthwiseConv2dSpec(
            input=[1, c, width, width], kernel=kernel, stride=stride, layout=layout, **types
        )
    if kind == "dense":
        return specs.DenseSpec(input=[draw(sizes), c], units=draw(channels), **types)
    if kind == "products":
        return specs.BatchMatmulSpec(a=[2, width, c], b=[2, c, draw(channels)], **types)
    if types.get("dtype") == "int8":
        types = {}  # a softmax is no sum of products
    keys = [1, 2, draw(sizes), c]
    return specs.AttentionSpec(query=[1, 2, width, c], key=keys, value=keys, **types)


@settings(max_examples=120, deadline=None)
@given(operators(), st.sampled_from(TARGETS))
# A tile of a map of 7 x 7 is 1, 7 or 49 wide: seven sums fit the registers, eight do not.
@example(specs.Conv2dSpec(input=[1, 16, 9, 9], filters=8, kernel=3, layout="NHWC"), TARGETS[2])
@example(
    specs.DepthwiseConv2dSpec(input=[1, 16, 7, 7], kernel=3, padding=1, layout="NHWC"), TARGETS[2]
)
def test_there_are_configurations_and_first_guesses(spec, target):
    space = SPACE.design_space(spec.task("t", target))
    assert len(space.first_guesses)
    assert len(space.sample(1, np.random.default_rng(0)))


def test_loops_shorter_than_the_start_of_threads_are_serial():
    for channels, size, several in ((8, 1, False), (64, 16, True)):
        spec = specs.Conv2dSpec(input=[2, channels, size, size], filters=8, kernel=3, padding=1)
        builder = SPACE.builder(spec.task("t", TARGETS[2]), threads=2)
        program = builder.program(builder.space.first_guesses[0].tolist())
        assert ("T.parallel" in program.function.script()) == several
