"""Rewrites quantized ONNX operators, such as ``QLinearConv``, in the QDQ form."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import first_line

QDQ_OPERATORS = ("QuantizeLinear", "DequantizeLinear")
_PER_CHANNEL_SINCE = 13
"""The opset in which ``QDQ_OPERATORS`` got scales for each channel, and ``Softmax`` one axis."""
ONNXRUNTIME_DOMAIN = "com.microsoft"
"""The domain of operators that only ONNX Runtime has."""
_FLOATS = (1, 10, 16)
"""``FLOAT``, ``FLOAT16`` and ``BFLOAT16`` of ``TensorProto``: too short for all sums in int32."""
_INT32, _HALF, _DOUBLE = 6, 10, 11
"""``INT32``, ``FLOAT16`` and ``DOUBLE`` of ``TensorProto``."""
_DOMAINS = frozenset({"", "ai.onnx", ONNXRUNTIME_DOMAIN})
"""The domains of operators that are rewritten: the standard's and ONNX Runtime's."""


def _onnx() -> Any:
    """The package onnx, which is imported only if a process reads a model."""
    return importlib.import_module("onnx")


def is_quantized_model(model: Any) -> bool:
    """Whether a model quantizes or dequantizes tensors, or has quantized operators."""
    return any(node.op_type in {*QDQ_OPERATORS, *_REWRITERS} for node in model.graph.node)


def inline_functions(model: Any) -> Any:
    """Inline a model's own functions, with defaults of attributes, which ONNX leaves out."""
    if not model.functions:
        return model
    result = _onnx().ModelProto()
    result.CopyFrom(model)
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in result.functions}
    pending = [*result.graph.node, *(node for item in result.functions for node in item.node)]
    while pending:
        node = pending.pop()
        names = {item.name for item in node.attribute}
        missing = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(item for item in missing if item.name not in names)
        for item in node.attribute:
            pending += [inner for graph in (item.g, *item.graphs) for inner in graph.node]
    return importlib.import_module("onnx.inliner").inline_local_functions(result)


def to_qdq(model: Any) -> Any:
    """Copy a model with its quantized operators in QDQ form."""
    if not any(_is_rewritten(node) for node in model.graph.node):
        return model
    result = _with_per_channel_opset(model)
    writer = _Writer(result)
    for node in result.graph.node:
        if _is_rewritten(node):
            _REWRITERS[node.op_type](_NodeRewriter(node=node, writer=writer))
        else:
            writer.nodes.append(node)
    del result.graph.node[:]
    result.graph.node.extend(writer.nodes)
    result.graph.initializer.extend(writer.constants)
    return result


def _is_rewritten(node: Any) -> bool:
    return node.op_type in _REWRITERS and node.domain in _DOMAINS


def _with_per_channel_opset(model: Any) -> Any:
    """A copy of a model, in an operator set that has a scale for each channel."""
    version = next(
        (item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}), 1
    )
    if version >= _PER_CHANNEL_SINCE:
        result = _onnx().ModelProto()
        result.CopyFrom(model)
        return result
    try:
        return _onnx().version_converter.convert_version(model, _PER_CHANNEL_SINCE)
    except Exception as error:
        raise ConfigError(
            f"the quantized operators of ONNX's operator set {version} cannot be read: "
            f"{first_line(error)}",
            hint=f"Export and quantize the network with operator set {_PER_CHANNEL_SINCE} or "
            "later.",
        ) from error


class _Writer:
    """Writes the nodes of the rewritten model, and the constants that they need.

    Attributes:
        nodes: The nodes written so far.
        constants: The initializers to add to the model.
    """

    def __init__(self, model: Any) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known = {item.name: item for item in model.graph.initializer}
        self._exact = {item.name for item in model.graph.output}
        infos = [*model.graph.input, *model.graph.value_info]
        self._halves = {item.name for item in infos if item.type.tensor_type.elem_type == _HALF}
        self._halves |= {name for name, item in self._known.items() if item.data_type == _HALF}
        for node in model.graph.node:
            if not (node.op_type == "Cast" and node.attribute[0].i in _FLOATS):
                self._exact.update(node.input)

    def add(self, kind: str, inputs: list[str], output: str, name: str, **attributes: Any) -> str:
        """Write one node, and return the name of its output."""
        attributes = {key: value for key, value in attributes.items() if value is not None}
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        self.nodes.append(_onnx().helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def constant(self, array: Any, name: str) -> str:
        """Write a constant, and return its name."""
        self.constants.append(_onnx().numpy_helper.from_array(array, name))
        return name

    def value(self, name: str) -> Any | None:
        """The value of a tensor that is a constant, or None if the network computes the tensor."""
        tensor = self._known.get(name)
        return None if tensor is None else _onnx().numpy_helper.to_array(tensor)

    def scale(self, name: str, reader: str) -> str:
        """A scale in float32, because products of quantized tensors overflow in half precision."""
        if name not in self._halves:
            return name
        wide = f"{reader}/{name}_{len(self.nodes)}"
        return self.add("Cast", [name], wide, wide, to=_FLOATS[0])

    def is_rounded(self, name: str) -> bool:
        """Whether all nodes that read a tensor first convert it to floating point."""
        return name not in self._exact

    @cached_property
    def unit_scale(self) -> str:
        """The name of a constant scale of one."""
        return self.constant(np.ones((), np.float32), "chameleon_scale_of_one")


@attrs.frozen(kw_only=True)
class _NodeRewriter:
    """The replacement of one node of the model.

    Attributes:
        node: The node to replace.
        writer: The writer of the replacing nodes.
    """

    node: Any
    writer: _Writer

    @property
    def name(self) -> str:
        """The node's name, unique in the graph."""
        return str(self.node.name or self.node.output[0])

    @property
    def output(self) -> str:
        """The name of the node's output."""
        return str(self.node.output[0])

    def input(self, index: int) -> str:
        """The name of an input of the node, or "" if the node leaves the input out."""
        inputs = self.node.input
        return str(inputs[index]) if index < len(inputs) else ""

    def attributes(self, *dropped: str) -> Mapping[str, Any]:
        """The node's attributes, except the named ones."""
        found = {a.name: _onnx().helper.get_attribute_value(a) for a in self.node.attribute}
        return {name: value for name, value in found.items() if name not in dropped}

    def dequantize_input(self, index: int, *, axis: int | None = None) -> str:
        """Write the dequantization of an input, by the scale and zero point that follow it."""
        return self.dequantize(*map(self.input, range(index, index + 3)), axis=axis)

    def dequantize(self, numbers: str, scale: str, zero: str, *, axis: int | None = None) -> str:
        """Write the dequantization of a tensor, and return the name of the result."""
        # An operator may read one tensor twice.
        name = f"{self.name}/dequantize_{len(self.writer.nodes)}"
        inputs = [numbers, self.writer.scale(scale, self.name), zero]
        return self.writer.add("DequantizeLinear", inputs, f"{name}/{numbers}", name, axis=axis)

    def unit_scales(self, zero: str) -> str:
        """A constant with a scale of one for each zero point."""
        value = self.writer.value(zero)
        if value is None or value.size == 1:
            return self.writer.unit_scale
        return self.writer.constant(np.ones(value.shape, np.float32), f"{zero}/{self.name}/ones")

    def quantize(self, real: str, index: int) -> None:
        """Write the quantization of the output, by the scale and zero point from ``index`` on."""
        scale = self.writer.scale(self.input(index), self.name)
        inputs = [real, scale, self.input(index + 1)]
        self.writer.add("QuantizeLinear", inputs, self.output, f"{self.name}/quantize")

    def compute(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """Write the floating-point operator, which gets the node's name."""
        return self.writer.add(kind, inputs, f"{self.name}/real", self.name, **attributes)

    def bias(self, index: int) -> str:
        """Dequantize an int32 bias by the product of the scales of data and weights."""
        writer, name, scales = (
            self.writer,
            f"{self.name}/bias_scale",
            [self.input(1), self.input(4)],
        )
        data, weights = map(writer.value, scales)
        if data is None or weights is None:
            writer.add("Mul", scales, name, name)
        else:
            scale = data.reshape(-1) * weights.reshape(-1)
            writer.constant(scale if len(scale) > 1 else scale.reshape(()), name)
        return self.dequantize(self.input(index), name, "", axis=0)


def _convolution(node: _NodeRewriter) -> None:
    """Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, [B]."""
    inputs = [node.dequantize_input(0), node.dequantize_input(3, axis=0)]
    if node.input(8):
        inputs.append(node.bias(8))
    node.quantize(node.compute("Conv", inputs, **node.attributes()), 6)


def _integer_product(
    kind: str, data_axis: int | None, weights_axis: int
) -> Callable[[_NodeRewriter], None]:
    """Inputs: x, w, [x_zero_point], [w_zero_point]. The output is a sum in int32."""

    def rewrite(node: _NodeRewriter) -> None:
        zeros = ((0, node.input(2), data_axis), (1, node.input(3), weights_axis))
        inputs = [
            node.dequantize(node.input(index), node.unit_scales(zero), zero, axis=axis)
            for index, zero, axis in zeros
        ]
        if not node.writer.is_rounded(node.output):  # float32 has no odd sums from 2^24 on
            names = [f"{name}/{node.name}/exact" for name in inputs]
            for name, exact in zip(inputs, names, strict=True):
                node.writer.add("Cast", [name], exact, exact, to=_DOUBLE)
            inputs = names
        sums = node.compute(kind, inputs, **node.attributes())
        node.writer.add("Cast", [sums], node.output, f"{node.name}/sums", to=_INT32)

    return rewrite


def _binary(kind: str, *axes: int | None) -> Callable[[_NodeRewriter], None]:
    """Inputs: A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point."""
    lhs_axis, rhs_axis = axes or (None, None)

    def rewrite(node: _NodeRewriter) -> None:
        inputs = [node.dequantize_input(0, axis=lhs_axis), node.dequantize_input(3, axis=rhs_axis)]
        node.quantize(node.compute(kind, inputs), 6)

    return rewrite


def _unary(kind: str, *dropped: str) -> Callable[[_NodeRewriter], None]:
    """Inputs: X, X_scale, X_zero_point, Y_scale, Y_zero_point."""

    def rewrite(node: _NodeRewriter) -> None:
        attributes = node.attributes(*dropped)
        if any(node.attributes().get(name) for name in dropped):
            raise ConfigError(
                f"node {node.name!r} ({node.node.op_type}) has {', '.join(dropped)} set",
                hint="Quantize the network with channels first, as ONNX has them.",
            )
        node.quantize(node.compute(kind, [node.dequantize_input(0)], **attributes), 3)

    return rewrite


def _softmax(node: _NodeRewriter) -> None:
    """Inputs: X, X_scale, X_zero_point, Y_scale, Y_zero_point."""
    attributes, real, add = node.attributes(), node.dequantize_input(0), node.writer.add
    axis = attributes.get("axis", -1)
    if attributes["opset"] >= _PER_CHANNEL_SINCE:
        result = node.compute("Softmax", [real], axis=axis)
    else:  # all axes from the given one on are flattened
        flat, shape, back = (f"{node.name}/{word}" for word in ("flat", "shape", "back"))
        add("Flatten", [real], flat, flat, axis=axis)
        add("Shape", [real], shape, shape)
        result = add("Reshape", [node.compute("Softmax", [flat], axis=1), shape], back, back)
    node.quantize(result, 3)


def _where(node: _NodeRewriter) -> None:
    """Inputs: condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero."""
    inputs = [node.input(0), node.dequantize_input(1), node.dequantize_input(4)]
    node.quantize(node.compute("Where", inputs), 7)


def _concatenation(node: _NodeRewriter) -> None:
    """Inputs: Y_scale, Y_zero_point, then the values, scale and zero point of each part."""
    parts = [node.dequantize_input(index) for index in range(2, len(node.node.input), 3)]
    node.quantize(node.compute("Concat", parts, **node.attributes()), 0)


def _gemm(node: _NodeRewriter) -> None:
    """Inputs: A, a_scale, a_zero_point, B, b_scale, b_zero_point, [C], [y_scale, y_zero_point]."""
    attributes = node.attributes()
    axis = 0 if attributes.get("transB") else 1
    inputs = [node.dequantize_input(0), node.dequantize_input(3, axis=axis)]
    if node.input(6):
        inputs.append(node.bias(6))
    if node.input(7):
        node.quantize(node.compute("Gemm", inputs, **attributes), 7)
    else:
        node.writer.add("Gemm", inputs, node.output, node.name, **attributes)


_REWRITERS: dict[str, Callable[[_NodeRewriter], None]] = {
    "QLinearConv": _convolution,
    "QLinearMatMul": _binary("MatMul", -2, -1),
    "ConvInteger": _integer_product("Conv", None, 0),
    "MatMulInteger": _integer_product("MatMul", -2, -1),
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearAveragePool": _unary("AveragePool", "channels_last"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool", "channels_last"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QLinearConcat": _concatenation,
    "QGemm": _gemm,
}
"""Functions that rewrite the quantized operators, by operator."""
