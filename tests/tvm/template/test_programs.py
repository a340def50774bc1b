"""Random legal configurations of every template compute the reference's numbers."""

import platform
from functools import partial

import computing
import numpy as np
import pytest
from chameleon_core.errors import InvalidConfigurationError
from chameleon_tvm.device.targets import target_info
from chameleon_tvm.operators.specs import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
)
from chameleon_tvm.spaces.template.options import TemplateOptions
from computing import NATIVE, convolutions, few, provider_of, resolved
from hypothesis import given, settings
from hypothesis import strategies as st

HASWELL = resolved("llvm -mcpu=haswell -num-cores=2")
DIRECT = TemplateOptions(algorithms=("direct",))
PROVIDER = provider_of(DIRECT)
check = partial(computing.check, options=DIRECT)
FEW = few(25)


@FEW
@given(convolutions(st.just({})), st.integers(0, 1000))
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
