"""Transposed convolutions rewritten as ordinary ones compute what torch's do."""

from typing import Any

import numpy as np
import torch
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.matching_convolutions import convolution_of, convolution_operator
from chameleon_networks.graph.prepare import prepared
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.graph.transposed import axis_plan
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.operators.convolution import from_layout, to_layout
from chameleon_tvm.operators.layouts import SPATIAL
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from ..modules import module_of, operators_of  # noqa: TID252 - shared by folders

TORCH = {1: "conv_transpose1d", 2: "conv_transpose2d", 3: "conv_transpose3d"}


@st.composite
def transposed(draw: Any) -> dict[str, Any]:
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    stride = each(1, 4)
    return {
        "groups": groups,
        "input": (draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), *each(1, 6)),
        "outputs": draw(st.integers(1, 3)),
        "kernel": each(1, 5),
        "stride": stride,
        "padding": each(0, 4),
        "dilation": each(1, 2),
        "output_padding": [draw(st.integers(0, s - 1)) for s in stride],
    }


def arrays(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, weights and bias."""
    rng = np.random.default_rng(0)
    weights = (case["input"][1], case["outputs"], *case["kernel"])
    shapes = (case["input"], weights, (case["outputs"] * case["groups"],))
    data, weights, bias = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return data, weights, bias


def expected(case: dict[str, Any]) -> np.ndarray:
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


def network(case: dict[str, Any]) -> Any:
    """A transposed convolution, bias and relu."""
    data, weights, bias = arrays(case)
    rank = len(case["kernel"])

    def build(emit: Any, x: Any) -> Any:
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


def computed(module: Any, data: np.ndarray) -> np.ndarray:
    """The output of a prepared network, by NumPy."""
    main = module["main"]
    values: dict[Any, np.ndarray] = {main.params[0]: data}

    def value_of(expression: Any) -> np.ndarray:
        if isinstance(expression, tvm.ir.GenericConst):
            return expression.value.numpy()
        return values[expression]

    def call(value: Any) -> np.ndarray:
        name, first = str(value.op.name).removeprefix("relax."), value_of(value.args[0])
        convolution = convolution_of(value)
        if convolution is not None:
            spec, weights = convolution_operator(convolution)
            operator = operator_of(spec.task("t", "llvm"))
            (out,) = operator.reference([from_layout(first, convolution.layout), weights])
            return to_layout(out, convolution.layout)
        if name == "strided_slice":
            axes, begin, end = ([int(e.value) for e in t.fields] for t in value.args[1:4])
            where = [slice(None)] * first.ndim
            for axis, start, stop in zip(axes, begin, end, strict=True):
                where[axis] = slice(start, stop)
            return first[tuple(where)]
        known = {
            "add": lambda: first + value_of(value.args[1]),
            "nn.relu": lambda: np.maximum(first, 0),
            "reshape": lambda: first.reshape([int(extent) for extent in value.ty.shape]),
            "permute_dims": lambda: first.transpose([int(a) for a in value.attrs.axes]),
        }
        return known[name]()

    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            values[binding.var] = call(value) if isinstance(value, relax.Call) else values[value]
    return values[main.body.body]


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


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(transposed(), st.sampled_from(["NHWC", "NCHW"]))
@example(UPSAMPLING, "NHWC")
def test_the_rewritten_network_computes_what_torch_does(case: dict[str, Any], layout: str):
    wanted = expected(case)
    assume(wanted.size)
    module = prepared(network(case), layout)
    # Bias and activation are part of the kernel: they come before the rearrangement.
    [chain] = chains_of(module)
    assert chain.spec.bias
    assert chain.spec.activation == "relu"
    got = computed(module, arrays(case)[0])
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 4),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(0, 3),
)
def test_an_axis_is_covered_without_positions_to_spare(
    size: int, reach: int, stride: int, pads: tuple[int, int], output_padding: int
):
    plan = axis_plan(
        size=size, reach=reach, stride=stride, pads=pads, output_padding=output_padding
    )
    assume(plan.out > 0)
    covered = plan.positions * stride
    assert 0 <= plan.crop < stride
    assert 0 <= covered - plan.crop - plan.out < stride
    assert plan.before + plan.size + plan.after - plan.taps + 1 == plan.positions


def test_upsampling_by_the_size_of_the_filter_multiplies_nothing_in_vain():
    """The most frequent one: no product with a zero, and nothing cut off."""
    module = prepared(network({**UPSAMPLING, "kernel": [2, 2], "padding": [0, 0]}), "NHWC")
    [chain] = chains_of(module)
    assert chain.spec.kernel_size == (1, 1)
    assert chain.spec.filters == 4 * 3
    assert "strided_slice" not in operators_of(module)


def test_an_output_that_is_read_twice_stays_where_it_is():
    case = {**UPSAMPLING, "kernel": [2, 2], "padding": [0, 0]}
    weights = relax.const(np.ones((4, 3, 2, 2), np.float32))

    def build(emit: Any, x: Any) -> Any:
        result = emit(relax.op.nn.conv2d_transpose(x, weights, strides=[2, 2]))
        return relax.op.subtract(result, emit(relax.op.nn.relu(result)))

    [chain] = chains_of(prepared(module_of(build, case["input"]), "NCHW"))
    assert chain.spec.plain
