"""Convolutions with channels first whose vectors are pixels compute the reference's numbers."""

from functools import partial

import computing
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm._operators.convolution_specs import Conv1dSpec, Conv3dSpec
from chameleon_tvm._spaces.template.options import ALGORITHM
from chameleon_tvm._spaces.template.planar_tiling import PLANAR
from chameleon_tvm.api import Conv2dSpec, DepthwiseConv2dSpec
from computing import EPILOGUES, NATIVE, PROVIDER, X86, few, require_sound, resolved
from hypothesis import assume, given
from hypothesis import strategies as st
from marks import full


def planar(space, count, seed):
    """The first guess of planar tiles, and random ones that are legal."""
    drawn = [*space.first_guesses, *space.sample(3000, np.random.default_rng(seed))]
    result = [config for config in drawn if space.decode(config)[ALGORITHM] == PLANAR]
    assert result
    return result[: 1 + count]


check = partial(computing.check, chosen=planar)


@st.composite
def convolutions(draw):
    groups, depthwise = draw(st.sampled_from([1, 1, 2, 3])), draw(st.booleans())
    small = st.integers(1, 3)
    channels = groups * draw(st.integers(1, 9))
    fields = {
        "input": [draw(st.integers(1, 2)), channels, draw(small) * 4, draw(st.integers(5, 40))],
        "kernel": (draw(st.integers(1, 4)), draw(st.integers(1, 5))),
        "stride": (draw(small), draw(small)),
        "padding": tuple(draw(st.integers(0, 2)) for _ in range(4)),
        "dilation": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        **draw(EPILOGUES),
    }
    try:
        if depthwise:
            spec = DepthwiseConv2dSpec(**fields, multiplier=draw(st.integers(1, 2)))
        else:
            spec = Conv2dSpec(**fields, groups=groups, filters=groups * draw(st.integers(1, 9)))
    except ConfigError:
        assume(False)
    assume(spec.output_shape[-1] > 1)
    return spec


@pytest.mark.full
@few(25)
@given(convolutions(), st.integers(0, 1000))
def test_programs_compute_the_reference(spec, seed):
    check(spec, seed, count=2)


@pytest.mark.parametrize(
    "spec",
    [
        full(Conv1dSpec(input=[2, 5, 90], kernel=3, padding=1, filters=7)),
        Conv2dSpec(input=[2, 24, 11, 13], kernel=1, filters=20, bias=True, residual=True),
        Conv3dSpec(input=[1, 6, 3, 5, 7], kernel=1, filters=9),
        full(Conv2dSpec(input=[1, 3, 40, 70], kernel=7, stride=2, padding=3, filters=9)),
    ],
    ids=lambda spec: f"{spec.kind}-{spec.kernel}",
)
def test_pixels_may_be_one_axis_and_filters_large(spec):
    check(spec, count=4)
    require_sound(PROVIDER.design_space(spec.task("t", NATIVE)))


ZEN4 = resolved(f"{X86}znver4 -num-cores=2")


@pytest.mark.parametrize(("size", "first"), [((64, 64), PLANAR), ((5, 5), "direct")])
def test_the_likelier_algorithm_is_guessed_first(size, first):
    spec = Conv2dSpec(input=[1, 64, *size], kernel=3, padding=1, filters=64)
    space = PROVIDER.design_space(spec.task("t", ZEN4))
    assert space.decode(space.first_guesses[0])[ALGORITHM] == first
    kinds = [space.decode(config)[ALGORITHM] for config in space.first_guesses[:4]]
    assert kinds.count(first) == 3
