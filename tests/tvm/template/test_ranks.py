"""Convolutions of one, two and three spatial axes, grouped and depthwise ones, are one template."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm._operators.convolution_specs import DEPTHWISE, GROUPED, Conv3dSpec
from chameleon_tvm._operators.layouts import channels_first, channels_last
from chameleon_tvm._spaces.template.convolution import ConvolutionTemplate, geometry_of
from chameleon_tvm._spaces.template.geometry import block_diagonal, groups_per_vector
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm.api import Conv2dSpec, DepthwiseConv2dSpec
from computing import EPILOGUES, NATIVE, check, few, first_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from marks import full

FEW = few(16)


@st.composite
def operators(draw):
    """Of any rank; of two axes depthwise ones alone, which may have several filters a channel."""
    depthwise = draw(st.booleans())
    rank = draw(st.sampled_from([1, 2, 3] if depthwise else [1, 3]))
    axes = range(rank)
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 40 if depthwise else 12))
    groups = 1 if depthwise else draw(st.sampled_from([1, 1, 2, 4]))
    sizes = [draw(st.integers(4, 40 if rank == 1 else 9)) for _ in axes]
    layouts = st.sampled_from([channels_first(rank), channels_last(rank)])
    kinds = {"multiplier": draw(st.sampled_from([1, 1, 2, 3]))}
    if not depthwise:
        kinds = {"filters": draw(st.integers(1, 24)) * groups, "groups": groups}
    try:
        return (DEPTHWISE if depthwise else GROUPED)[rank](
            input=[batch, channels * groups, *sizes],
            kernel=tuple(draw(st.integers(1, 3 if rank > 1 else 9)) for _ in axes),
            stride=tuple(draw(st.integers(1, 3)) for _ in axes),
            padding=tuple(draw(st.integers(0, 2)) for _ in range(2 * rank)),
            dilation=tuple(draw(st.integers(1, 2)) for _ in axes),
            layout=draw(layouts),
            output_layout=draw(layouts),
            **kinds,
            **draw(EPILOGUES),
        )
    except ConfigError:
        assume(False)


@pytest.mark.full
@settings(FEW, max_examples=32)
@given(operators(), st.integers(0, 1000))
def test_convolutions_of_any_rank(spec, seed):
    check(spec, seed)


@pytest.mark.parametrize("layout", ["NHWC", full("NCHW"), full("NCHW16c")])
@pytest.mark.parametrize(("channels", "groups"), [(64, 16), (48, 16), (32, 4), (16, 8)])
def test_small_groups_share_vectors(layout, channels, groups):
    check(
        Conv2dSpec(
            input=[1, channels, 9, 8],
            filters=channels,
            kernel=3,
            padding=1,
            groups=groups,
            layout=layout,
            bias=True,
        ),
        seed=0,
    )


@given(st.integers(1, 20), st.integers(1, 64), st.sampled_from([4, 8, 16]))
def test_groups_are_computed_together_only_where_that_is_free(oc, groups, lanes):
    spec = Conv2dSpec(input=[1, 2 * groups, 5, 5], filters=oc * groups, kernel=1, groups=groups)
    together = groups_per_vector(geometry_of(spec, lanes))
    assert groups % together == 0
    assert together == 1 or together * oc <= lanes


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_block_diagonal_weights_are_those_of_the_groups(oc, ic, groups, together):
    groups *= together
    weights = np.arange(1, 1 + groups * oc * ic * 2, dtype=np.float32).reshape(-1, ic, 2)
    data = np.random.default_rng(0).normal(size=(groups, ic, 2))
    wide = block_diagonal(weights, groups, together)
    assert wide.shape == (groups * oc, together * ic, 2)
    expected = np.einsum("goit,git->go", weights.reshape(groups, oc, ic, 2), data)
    merged = wide.reshape(groups // together, together * oc, together * ic, 2)
    got = np.einsum("goit,git->go", merged, data.reshape(groups // together, -1, 2))
    np.testing.assert_allclose(got.ravel(), expected.ravel(), rtol=1e-5)


def test_frames_that_do_not_mix_are_images_of_a_batch():
    """Of a spatial filter over a video, which Winograd's algorithms then compute, too."""
    spec = Conv3dSpec(
        input=[1, 16, 5, 8, 8], filters=16, kernel=[1, 3, 3], padding=[0, 1, 1], layout="NDHWC"
    )
    geometry = geometry_of(spec, 8)
    assert (geometry.batch, geometry.outer) == (5, ())
    assert "algorithm" in template_of(spec.task("t", NATIVE)).space().index
    check(spec, seed=1)
    mixing = geometry_of(Conv3dSpec(input=[1, 16, 5, 8, 8], filters=16, kernel=3), 8)
    assert (mixing.batch, len(mixing.outer)) == (1, 1)


def test_taps_in_the_padding_of_an_outer_axis_are_not_counted():
    spec = Conv3dSpec(input=[1, 8, 2, 8, 8], filters=16, kernel=3, padding=1, layout="NDHWC")
    (depth,) = geometry_of(spec, 8).outer
    assert depth.inside_fraction == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    "spec",
    [
        Conv3dSpec(input=[1, 8, 3, 6, 6], filters=24, kernel=3, layout="NDHWC", bias=True),
        Conv2dSpec(input=[1, 32, 6, 6], filters=32, kernel=3, groups=8, layout="NHWC"),
        DepthwiseConv2dSpec(input=[1, 3, 6, 6], kernel=3, multiplier=2, layout="NHWC"),
    ],
    ids=lambda spec: spec.kind,
)
def test_programs_take_the_shapes_of_the_operator(spec):
    """As a network calls them: arrays in the layout, packed constants."""
    template = template_of(spec.task("t", NATIVE))
    _, function = first_of(template)
    shapes = {str(p.name): tuple(int(extent) for extent in p.shape) for p in function.params}
    n, c, *sizes = spec.input
    assert shapes["data"] == (n, *sizes, c)
    n, c, *sizes = spec.output_shape
    assert shapes["out"] == (n, *sizes, c)
    assert isinstance(template, ConvolutionTemplate) == (spec.kind != "depthwise_conv2d")
