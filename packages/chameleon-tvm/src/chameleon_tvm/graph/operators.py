"""Finds the operators of a network that are worth tuning."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import structlog
from chameleon_core.errors import ConfigError

from chameleon_tvm.graph.relaxed import relax, tvm
from chameleon_tvm.operators.specs import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
    OperatorSpec,
)

log = structlog.get_logger()

_MATRIX = 2
_IMAGE = 4


def specs_of(module: Any, layout: str) -> list[OperatorSpec]:
    """The distinct convolutions and matrix products of a network, with how often each occurs.

    Everything else is left to the compiler, and said so once.

    Args:
        module: an ``IRModule`` whose ``main`` is the network.
        layout: the layout in which convolutions are to be tuned, whatever the network's own.

    Returns:
        Named by kind and first place, weighted, in the network's order.

    Raises:
        ConfigError: a shape is not known, or an operator cannot be what it says.
    """
    counted: dict[OperatorSpec, int] = {}
    left: Counter[str] = Counter()
    for call in _calls(module["main"]):
        name = str(call.op.name)
        spec = _spec(call, name, layout)
        if spec is None:
            left[name.removeprefix("relax.")] += 1
        else:
            counted[spec] = counted.get(spec, 0) + 1
    log.info("operators_left_to_the_compiler", **dict(left))
    return [
        attrs.evolve(spec, name=f"{spec.kind}_{place}", weight=weight)
        for place, (spec, weight) in enumerate(counted.items())
    ]


def _calls(function: Any) -> Iterator[Any]:
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
                yield value


def _spec(call: Any, name: str, layout: str) -> OperatorSpec | None:
    if name == "relax.nn.conv2d":
        return _convolution(call, layout)
    if name == "relax.matmul":
        return _product(call)
    return None


def _convolution(call: Any, layout: str) -> OperatorSpec | None:
    at = call.attrs
    if str(at.data_layout) != "NCHW" or str(at.kernel_layout) != "OIHW":
        raise ConfigError(
            f"a convolution has the layouts {at.data_layout} and {at.kernel_layout}",
            hint="Import the network as its framework writes it, in NCHW and OIHW.",
        )
    data, weights = (_shape(argument) for argument in call.args)
    if _dtype(call.args[0]) != "float32":
        return None
    groups = int(at.groups)
    common: dict[str, Any] = {
        "input": data,
        "kernel": weights[2:],
        "stride": _numbers(at.strides),
        "padding": _numbers(at.padding),
        "dilation": _numbers(at.dilation),
        "layout": layout,
    }
    if groups == data[1] and groups > 1:
        return DepthwiseConv2dSpec(**common, multiplier=weights[0] // groups)
    return Conv2dSpec(**common, filters=weights[0], groups=groups)


def _product(call: Any) -> OperatorSpec | None:
    left, right = call.args
    a, b = _shape(left), _shape(right)
    if _dtype(left) != "float32" or len(a) < _MATRIX or len(b) < _MATRIX:
        return None
    if len(b) == _MATRIX:
        return _made(DenseSpec, input=(math.prod(a[:-1]), a[-1]), units=b[-1])
    if a[:-2] != b[:-2]:
        return None  # broadcast: no template of ours, and rare
    batch = math.prod(a[:-2])
    return _made(BatchMatmulSpec, a=(batch, *a[-2:]), b=(batch, *b[-2:]))


def _made(kind: type[OperatorSpec], **arguments: Any) -> OperatorSpec:
    return kind(**arguments)


def _shape(argument: Any) -> tuple[int, ...]:
    kind = argument.ty
    shape = getattr(kind, "shape", None)
    if shape is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape):
        raise ConfigError(
            f"the network has a tensor of unknown shape: {kind}",
            hint="Fix every input's shape; dynamic shapes are not supported.",
        )
    return tuple(int(extent) for extent in shape)


def _dtype(argument: Any) -> str:
    return str(argument.ty.dtype)


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
