"""Transposed convolutions rewritten as ordinary ones compute what torch's do."""

import numpy as np
import pytest
import torch
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._graph.transposed_convolutions import TransposedAxis, axis_plan
from chameleon_tvm._operators.layouts import SPATIAL
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from ..modules import module_of, operators_of  # noqa: TID252 - shared by folders
from .quantized.pieces import evaluated

TORCH = {1: "conv_transpose1d", 2: "conv_transpose2d", 3: "conv_transpose3d"}


@st.composite
def transposed(draw):
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))

    def each(low, high):
        return [draw(st.integers(low, high)) for _ in range(rank)]

    stride = each(1, 4)
    return {
        "groups": groups,
        "input": (draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), *each(1, 6)),
        "outputs": draw(st.sampled_from([1, 2, 3, 17])),
        "kernel": each(1, 5),
        "stride": stride,
        "padding": each(0, 4),
        "dilation": each(1, 2),
        "output_padding": [draw(st.integers(0, s - 1)) for s in stride],
    }


def arrays(case):
    """Images, weights and bias."""
    rng = np.random.default_rng(0)
    weights = (case["input"][1], case["outputs"], *case["kernel"])
    shapes = (case["input"], weights, (case["outputs"] * case["groups"],))
    data, weights, bias = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return data, weights, bias


def expected(case):
    """What torch computes; empty where it refuses the case."""
    try:
        out = getattr(functional, TORCH[len(case["kernel"])])(
            *map(torch.from_numpy, arrays(case)),
            case["stride"],
            case["padding"],
            case["output_padding"],
            case["groups"],
            case["dilation"],
        )
    except RuntimeError:
        return np.empty(0)
    return out.relu().numpy()


def network(case):
    """A transposed convolution, bias and relu."""
    data, weights, bias = arrays(case)
    rank = len(case["kernel"])

    def build(emit, x):
        result = getattr(relax.op.nn, f"conv{rank}d_transpose")(
            x,
            relax.const(weights),
            strides=case["stride"],
            padding=case["padding"],
            output_padding=case["output_padding"],
            dilation=case["dilation"],
            groups=case["groups"],
            data_layout=f"NC{SPATIAL[-rank:]}",
            kernel_layout=f"IO{SPATIAL[-rank:]}",
        )
        result = emit(relax.op.add(emit(result), relax.const(bias.reshape(1, -1, *[1] * rank))))
        return relax.op.nn.relu(result)

    return module_of(build, data.shape)


UPSAMPLING = {
    "groups": 1,
    "input": (1, 4, 5, 6),
    "outputs": 3,
    "kernel": [4, 2],
    "stride": [2, 2],
    "padding": [1, 0],
    "dilation": [1, 1],
    "output_padding": [0, 0],
}


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(transposed(), st.sampled_from(["NHWC", "NCHW"]))
@example(UPSAMPLING, "NHWC")
def test_the_rewritten_network_computes_what_torch_does(case, layout):
    wanted = expected(case)
    assume(wanted.size)
    module = prepare_module(network(case), layout)
    # Bias and activation are part of the kernels: they come before the concatenation.
    for fusion in find_fusions(module):
        assert fusion.spec.bias
        assert fusion.spec.activation == "relu"
    got = evaluated(module, arrays(case)[0])
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@given(
    st.builds(
        TransposedAxis,
        size=st.integers(1, 9),
        kernel=st.integers(1, 9),
        stride=st.integers(1, 4),
        pads=st.tuples(st.integers(0, 5), st.integers(0, 5)),
        output_padding=st.integers(0, 3),
    ),
    st.booleans(),
)
def test_an_axis_is_covered_and_each_tap_belongs_to_one_output(axis, together):
    plan = axis_plan(axis, together=together)
    assume(plan.out > 0)
    assert plan.stride == axis.stride
    assert 0 <= plan.positions * plan.stride - plan.out < plan.stride
    taps = [tap for phase in plan.phases for output in phase.taps for tap in output]
    assert len(taps) == len(set(taps)) <= axis.kernel
    assert together or len(plan.phases) == plan.stride


@pytest.mark.parametrize(
    ("kernel", "padding", "taps", "filters"),
    [
        # Outputs of a row that read one input are channels of one convolution.
        ([2, 2], [0, 0], [(1, 1)] * 2, 2 * 16),
        ([3, 3], [1, 1], [(1, 1), (1, 2), (2, 1), (2, 2)], 16),
        ([4, 4], [1, 1], [(2, 2)] * 4, 16),
    ],
)
def test_no_tap_is_multiplied_in_vain(kernel, padding, taps, filters):
    case = {**UPSAMPLING, "outputs": 16, "kernel": kernel, "padding": padding}
    case["output_padding"] = [k % 2 for k in kernel]
    module = prepare_module(network(case), "NHWC")
    fusions = find_fusions(module)
    assert [fusion.spec.kernel_size for fusion in fusions] == taps
    assert {fusion.spec.filters for fusion in fusions} == {filters}
    assert not {"strided_slice", "nn.pad"}.intersection(operators_of(module))


def test_few_channels_of_all_outputs_of_a_stride_are_one_convolution():
    case = {**UPSAMPLING, "kernel": [4, 4], "padding": [1, 1]}
    [fusion] = find_fusions(prepare_module(network(case), "NHWC"))
    assert fusion.spec.kernel_size == (2, 2)
    assert fusion.spec.filters == 4 * 3


def test_an_output_that_is_read_twice_stays_where_it_is():
    case = {**UPSAMPLING, "kernel": [2, 2], "padding": [0, 0]}
    weights = relax.const(np.ones((4, 3, 2, 2), np.float32))

    def build(emit, x):
        result = emit(relax.op.nn.conv2d_transpose(x, weights, strides=[2, 2]))
        return relax.op.subtract(result, emit(relax.op.nn.relu(result)))

    fusions = find_fusions(prepare_module(module_of(build, case["input"]), "NCHW"))
    assert all(fusion.spec.plain for fusion in fusions)
