"""The nodes of an ONNX graph, their definitions in the standard, and the value of constant ones."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx
from chameleon_tvm.api import first_line, tvm
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from chameleon_networks._graph.constants import array_of, constant_of
from chameleon_networks._graph.counted import Axes, CountedAxes
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx.emulated_types import EMULATED, Emulated, compute_dtype

Value = Any
"""A Relax expression, an ``Emulated``, a list for a sequence, or None if it is omitted."""


UNKNOWN_SHAPE = "the shape of what it gives depends on the numbers it reads"
"""The reason if the shapes of a node's outputs are known only at run time."""


def is_constant(value: Value) -> bool:
    """Whether a tensor is constant, so that its values are known before the network runs."""
    value = value.value if isinstance(value, Emulated) else value
    return isinstance(value, tvm.ir.GenericConst)


def none_if_empty(value: Value) -> Value:
    """An input, or None if it is an empty constant, as version 11 writes what it leaves out."""
    return None if is_constant(value) and not constant_value(value).size else value


def constant_value(value: Value) -> NDArray[Any]:
    """The values of a constant tensor, in the dtype that the ONNX model has for it."""
    if isinstance(value, Emulated):
        return array_of(value.value).astype(np.dtype(value.dtype))
    return array_of(value)


class NodeError(Exception):
    """A node of an ONNX graph cannot be converted. The message does not name the node."""


class ConstantNeededError(Exception):
    """A converter needs the value of an input at compile time, but the network computes it.

    Attributes:
        value: The Relax expression of the input.
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@attrs.frozen(kw_only=True, eq=False)
class Node:
    """A node of an ONNX graph, as a converter reads it.

    Attributes:
        builder: A ``BlockBuilder`` that is inside a block.
        op_type: The name of the operator.
        inputs: The inputs as Relax expressions. None for an input that the node leaves out.
        attributes: The attributes by name, with the standard's defaults.
        opset: The version of the operator set.
        outputs: Number of the outputs that the node names.
        emulated_dtypes: For each input, the dtype that an ``Emulated`` represents, else None.
        counted: Finds out which axes have sizes that are known only when the network runs; None if
            there are none.
    """

    builder: Any
    op_type: str
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    emulated_dtypes: tuple[str | None, ...] = ()
    counted: CountedAxes | None = None

    def emit(self, value: Any) -> Any:
        """Bind an expression to a variable, and return the variable."""
        return self.builder.emit(value)

    def counted_axes(self, index: int = 0) -> Axes:
        """The axes of an input whose sizes are known only when the network runs."""
        return {} if self.counted is None else self.counted.of(self[index])

    def __getitem__(self, index: int) -> Any:
        """The input with a number, or None if the node leaves that input out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def known(self, index: int) -> NDArray[Any] | None:
        """The value of an input that must be constant; None if the node leaves it out."""
        value = self[index]
        if value is None:
            return None
        if not isinstance(value, tvm.ir.GenericConst):
            raise ConstantNeededError(value)
        return array_of(value)

    def value(self, index: int) -> NDArray[Any]:
        """The value of an input that must be a constant and that the node must not leave out."""
        array = self.known(index)
        if array is None:
            raise NodeError(f"its input {index} is left out")
        return array

    def integers(self, index: int) -> list[int]:
        """The value of an input that must be a constant, as a list of integers."""
        return [int(number) for number in self.value(index).reshape(-1)]

    def window(self, rank: int) -> list[list[int]]:
        """The strides, dilations and pads of an operator over ``rank`` spatial axes."""
        defaults = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank}
        return [list(self.attributes.get(name) or some) for name, some in defaults.items()]

    @property
    def axes(self) -> list[int]:
        """The node's axes, from its attribute ``axes`` or its second input; empty without both."""
        constants = self.attributes.get("axes")
        return list(constants or ([] if self[1] is None else self.integers(1)))


CONSTANT_INPUTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            *("Reshape", "Expand", "Tile", "Split", "Squeeze", "Unsqueeze", "CumSum", "CumProd"),
            *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"),
            *("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "TopK", "Trilu"),
            *("CenterCropPad", "Upsample", "AffineGrid"),
        ),
        (1,),
    ),
    **dict.fromkeys(("ConstantOfShape", "RandomNormal"), (0,)),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
    **dict.fromkeys(("OneHot", "Dropout", "Col2Im", "DFT"), (1, 2)),
    **dict.fromkeys(("Resize", "Pad"), (1, 2, 3)),
    "Range": (0, 1, 2),
    "MatMulNBits": (1, 2, 3, 4),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "Slice": (1, 2, 3, 4),
    "STFT": (1, 3),
    **dict.fromkeys(("MaxUnpool", "NonMaxSuppression"), (2,)),
}
"""Numbers of the inputs whose values must be known before compilation, by operator."""


def dtype_name(number: int) -> str:
    """The name of the dtype that has a number in ONNX."""
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)).name)


def shape_of(value: Any) -> list[int]:
    """The shape of a tensor."""
    value = value.value if isinstance(value, Emulated) else value
    return [int(item) for item in value.ty.shape]


def dtype_of(value: Any) -> str:
    """The dtype of a tensor."""
    if isinstance(value, Emulated):
        return value.dtype
    return str(value.ty.dtype)


def normalize_axis(axis: int, rank: int) -> int:
    """The number of an axis, counted from the front."""
    if not -rank <= axis < rank:
        raise NodeError(f"there is no axis {axis} among {rank} axes")
    return axis % rank


def scalar(number: Any, like: Any) -> Any:
    """Make a scalar Relax constant."""
    dtype = like if isinstance(like, str) else dtype_of(like)
    return relax.const(number, dtype)


def relax_constant(array: Any) -> Value:
    """Make a Relax constant, or an ``Emulated`` if kernels lack the array's dtype."""
    array = np.asarray(array)
    dtype = array.dtype.name
    if array.dtype.kind in "OUS":
        raise NodeError("it has strings")
    if dtype in EMULATED:
        return Emulated(relax_constant(array.astype(compute_dtype(dtype))), dtype)
    return constant_of(array)


_SCOPES, _WEIGHT = "pkg.torch.onnx.name_scopes", ".weight"


def owner_of(node: Any) -> str:
    """The name of a node in error messages: its torch module, or else its own name."""
    scopes = next((item.value for item in node.metadata_props if item.key == _SCOPES), None)
    if scopes is None:
        return str(node.name)
    # The exporter folds normalizations into convolutions, which then have the scopes of these
    # normalizations.
    weights = (name.removesuffix(_WEIGHT) for name in node.input if name.endswith(_WEIGHT))
    try:
        # The list has the modules, the outermost one first, and ends with the call.
        *_, module, _ = ast.literal_eval(scopes)
    except (SyntaxError, ValueError):
        module = ""
    return str(next(weights, module) or node.name)


def sentence_of(node: Any) -> str:
    """A phrase for messages that names a node."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node {node.op_type}"


_NOT_FOLDED = frozenset(
    (
        *("QuantizeLinear", "DequantizeLinear", "Bernoulli", "Multinomial", "Dropout"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
"""Operators that are never computed during import: quantization and random operators."""


def is_foldable(node: Any, inputs: Sequence[Value]) -> bool:
    """Whether a node can be computed at compile time: it is deterministic and reads constants."""
    return node.op_type not in _NOT_FOLDED and all(
        value is None or is_constant(value) for value in inputs
    )


def _single_node_model(node: Any, opset: int) -> Any:
    """A model of one node; without it, ONNX's reference would take the newest operator set."""
    inputs, outputs = (
        [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names) if name]
        for names in (node.input, node.output)
    )
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    opsets = [onnx.helper.make_opsetid(domain, opset) for domain in {node.domain, ""}]
    return onnx.helper.make_model(graph, opset_imports=opsets)


def evaluate_node(node: Any, inputs: Sequence[Value], opset: int) -> list[Value]:
    """Let ONNX's reference evaluator compute the outputs of a node whose inputs are constants."""
    feeds = {
        # ONNX's reference may write into its inputs.
        name: constant_value(value).copy()
        for name, value in zip(node.input, inputs, strict=True)
        if value is not None
    }
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(_single_node_model(node, opset)).run(None, feeds)
    except Exception as error:
        raise NodeError(f"ONNX's reference cannot compute it: {first_line(error)}") from error
    constants = iter(
        [relax_constant(part) for part in value]
        if isinstance(value, list)
        else relax_constant(value)
        for value in results
    )
    return [next(constants) if name else None for name in node.output]


def to_dense(sparse: Any) -> NDArray[Any]:
    """A sparse ONNX tensor as a dense array."""
    values, places = map(onnx.numpy_helper.to_array, (sparse.values, sparse.indices))
    results = np.zeros(list(sparse.dims), values.dtype)
    if places.ndim == 1:
        results.reshape(-1)[places] = values
    else:
        results[tuple(places.T)] = values
    return results


_LATEST_OPSET = 2**31 - 1
STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
"""The names of the standard's domain."""


def schema_of(node: Any, domain: str, opset: int = _LATEST_OPSET) -> Any | None:
    """The definition of a node's operator in the ONNX standard; None if there is none."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def attributes_of(node: Any, schema: Any) -> dict[str, Any]:
    """A node's attributes by name, with the standard's defaults for missing ones."""
    attributes = {}
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                attributes[name] = _decode_attribute(
                    onnx.helper.get_attribute_value(attribute.default_value)
                )
    attributes.update(
        {
            item.name: _decode_attribute(onnx.helper.get_attribute_value(item))
            for item in node.attribute
        }
    )
    return attributes


def _decode_attribute(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return tuple(_decode_attribute(item) for item in value)
    return value


def function_body(node: Any, schema: Any, inputs: Sequence[Value], opset: int) -> Any | None:
    """The standard's definition of a node's operator by simpler operators; None without one."""
    if schema is None:
        return None
    if schema.has_function:
        versions = [item for item in schema.function_opset_versions if item <= opset]
        if versions:
            raw = schema.get_function_with_opset_version(max(versions))
            return _parse_function(raw)
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        types = [_type_of(value).SerializeToString() for value in inputs]
        if versions:
            raw = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), types
            )
            return _parse_function(raw)
    return None


def _parse_function(raw: bytes) -> Any | None:
    body = onnx.FunctionProto()
    body.ParseFromString(raw)
    return body if body.node else None


def _type_of(value: Value) -> Any:
    """The ONNX type of a value."""
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        inner = _type_of(value[0]) if value else onnx.TypeProto()
        return onnx.helper.make_sequence_type_proto(inner)
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value)))
    return onnx.helper.make_tensor_type_proto(dtype, shape_of(value))


def bind_attributes(node: Any, values: Mapping[str, Any], caller: Any) -> Any:
    """Copy a node of a function's body, and fill in the attributes that the caller passes."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for item in node.attribute:
        if item.ref_attr_name and item.ref_attr_name not in values:
            continue
        attribute = copy.attribute.add()
        attribute.CopyFrom(values[item.ref_attr_name] if item.ref_attr_name else item)
        attribute.name = item.name
        if attribute.HasField("g"):
            nodes = [bind_attributes(inner, values, caller) for inner in attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(nodes)
    copy.name = caller.name
    del copy.metadata_props[:]
    copy.metadata_props.extend(caller.metadata_props)
    return copy


def cast_like_to_cast(node: Any, dtype: str) -> Any:
    """Rewrite ``CastLike`` as ``Cast``, so that the cast of a constant can be folded."""
    cast = onnx.NodeProto()
    cast.CopyFrom(node)
    cast.op_type = "Cast"
    del cast.input[1:]
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    cast.attribute.append(onnx.helper.make_attribute("to", number))
    return cast
