"""Random legal configurations of every template compute the reference's numbers."""

import platform

import numpy as np
import pytest
from chameleon_core.errors import ConfigError, InvalidConfigurationError
from chameleon_core.plugins import NoOptions
from chameleon_tvm.device.targets import TVMTargets, target_info
from chameleon_tvm.operators.specs import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
)
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import TemplateSpace
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

NATIVE = TVMTargets(NoOptions()).resolve("native")
HASWELL = TVMTargets(NoOptions()).resolve("llvm -mcpu=haswell -num-cores=2")
PROVIDER = TemplateSpace(TemplateOptions(algorithms=("direct",)))
FEW = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def check(spec, seed, count=1, target=NATIVE):
    """Build random legal configurations and the first guess, and compare their outputs."""
    task = spec.task("t", target)
    builder = PROVIDER.builder(task, threads=2)
    (expected,), tolerance = builder.reference()
    space = PROVIDER.design_space(task)
    drawn = space.sample(count, np.random.default_rng(seed))
    assert len(drawn), "the space has no legal configuration"
    for config in [*space.first_guesses[:1], *drawn]:
        (got,) = builder.build(config.tolist()).outputs()
        assert got.shape == expected.shape
        error = np.abs(got - expected).max() / np.abs(expected).max()
        assert error <= tolerance, space.decode(config)


@st.composite
def convolutions(draw):
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    block = draw(st.sampled_from([4, 8, 16]))
    blocked = f"NCHW{block}c"
    layout = draw(st.sampled_from(["NCHW", "NHWC", "NHWC", blocked]))
    output = draw(st.sampled_from(["NCHW", "NHWC", "NHWC", blocked]))
    ic = draw(st.integers(1, 20)) if layout != blocked else block * draw(st.integers(1, 2))
    oc = draw(st.integers(1, 40)) if output != blocked else block * draw(st.integers(1, 3))
    small = st.integers(1, 3)
    size = st.integers(1, 15)
    try:
        return Conv2dSpec(
            input=[draw(st.integers(1, 2)), ic * groups, draw(size), draw(size)],
            filters=oc * groups,
            kernel=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
            stride=(draw(small), draw(small)),
            padding=tuple(draw(st.integers(0, 2)) for _ in range(4)),
            dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
            groups=groups,
            layout=layout,
            output_layout=output,
        )
    except ConfigError:
        assume(False)


@FEW
@given(convolutions(), st.integers(0, 1000))
def test_convolutions(spec, seed):
    check(spec, seed)


@st.composite
def depthwise(draw):
    layout = draw(st.sampled_from(["NCHW", "NHWC", "NCHW4c", "NCHW16c"]))
    channels = draw(st.integers(16, 50)) if "c" not in layout else 16 * draw(st.integers(1, 3))
    size = st.integers(5, 13)
    return DepthwiseConv2dSpec(
        input=[draw(st.integers(1, 2)), channels, draw(size), draw(size)],
        kernel=(draw(st.integers(1, 5)), draw(st.integers(1, 5))),
        stride=draw(st.integers(1, 2)),
        padding=draw(st.integers(0, 2)),
        layout=layout,
    )


@settings(FEW, max_examples=10)
@given(depthwise(), st.integers(0, 1000))
def test_depthwise_convolutions(spec, seed):
    check(spec, seed)


@settings(FEW, max_examples=8)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70), st.integers(0, 1000))
def test_dense(rows, features, units, seed):
    check(DenseSpec(input=[rows, features], units=units), seed)


@settings(FEW, max_examples=10)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 40)),
    st.booleans(),
    st.integers(0, 1000),
)
def test_batch_matmul(sizes, transpose, seed):
    batch, rows, inner, columns = sizes
    right = [batch, columns, inner] if transpose else [batch, inner, columns]
    check(BatchMatmulSpec(a=[batch, rows, inner], b=right, transpose_b=transpose), seed)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_stem_has_three_channels_and_a_large_filter(layout):
    check(
        Conv2dSpec(input=[1, 3, 33, 33], filters=64, kernel=7, stride=2, padding=3, layout=layout),
        seed=0,
        count=4,
    )


def test_an_illegal_configuration_is_refused_with_its_reason():
    task = DenseSpec(input=[64, 64], units=64).task("t", NATIVE)
    space = PROVIDER.design_space(task)
    everything = space.from_keys(np.arange(space.size))
    illegal = everything[~space.legal(everything)][0]
    with pytest.raises(InvalidConfigurationError, match=space.why_illegal(illegal)):
        PROVIDER.builder(task, threads=2).build(illegal.tolist())


@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"} or target_info(NATIVE).vector_bytes < 32,
    reason="this machine cannot run AVX2 code",
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW8c"])
def test_code_for_avx2_computes_the_same(layout):
    info = target_info(HASWELL)
    assert (info.lanes("float32"), info.vector_registers) == (8, 16)
    spec = Conv2dSpec(input=[1, 16, 9, 11], filters=24, kernel=3, padding=1, layout=layout)
    check(spec, seed=0, count=2, target=HASWELL)
