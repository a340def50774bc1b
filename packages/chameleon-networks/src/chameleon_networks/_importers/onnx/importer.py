"""Imports ONNX graphs into Relax.

ONNX's reference folds constants; Chameleon's converter, TVM's, or the standard's function converts
each other node.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import onnx
import structlog
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import WAY_OUT, first_line
from numpy.typing import NDArray
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map, onnx_input

from chameleon_networks._graph import counted
from chameleon_networks._graph.quantization import is_quantized, quantizes_activations
from chameleon_networks._graph.relax_utils import bindings_of, relax, static_shape
from chameleon_networks._importers.onnx import converters, nodes
from chameleon_networks._importers.onnx.arithmetic import KERNEL_DTYPES
from chameleon_networks._importers.onnx.control_flow import CONTROL_FLOW
from chameleon_networks._importers.onnx.data_movement import COUNTING
from chameleon_networks._importers.onnx.emulated_types import (
    EMULATED,
    Emulated,
    decode_input,
    encode_output,
    interface_dtype,
)
from chameleon_networks._importers.onnx.nodes import ConstantNeededError, Node, NodeError, Value
from chameleon_networks._importers.onnx.quantized_operators import (
    ONNXRUNTIME_DOMAIN,
    inline_functions,
)
from chameleon_networks._importers.unsupported_operators import OperatorSurvey, UnsupportedNode
from chameleon_networks._source_location import ImportedGraph, SourceLocation

log = structlog.get_logger()

Scope = dict[str, Value]


UNKNOWN = object()
"""The value of an unsupported node's output of unknown shape."""

_NO_OPERATOR = "the compiler has no such operator"
_MAKE_CONSTANT = "Make it a constant of the file (an initializer), as its value decides on shapes."


class _UnsupportedNodeError(Exception):
    """A node cannot be converted.

    Attributes:
        unsupported: The node, and the reason why it cannot be converted.
    """

    def __init__(self, unsupported: UnsupportedNode) -> None:
        super().__init__(unsupported.reason)
        self.unsupported = unsupported


def import_model(
    model: Any,
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, NDArray[Any]] | None = None,
) -> ImportedGraph:
    """Import an ONNX model into Relax, and record which node each variable comes from."""
    importer = _Importer(model, shapes, values or {})
    module = importer.module()
    return ImportedGraph(
        module=module,
        locations=importer.locations_in(module),
        is_quantized=is_quantized(module),
        is_rounded=quantizes_activations(module),
        operators=importer.survey.operators,
    )


class _Importer:
    """Converts a model node by node, and notes the node that each variable comes from."""

    def __init__(
        self, model: Any, shapes: Mapping[str, Sequence[int]], values: Mapping[str, NDArray[Any]]
    ) -> None:
        self._model = inline_functions(model)
        self._shapes, self._values = shapes, values
        self._builder = relax.BlockBuilder()
        self._locations: dict[Any, SourceLocation] = {}
        self._inputs: dict[Any, str] = {}
        self._outputs_of_nodes: dict[Any, str] = {}
        self._counted: counted.CountedAxes | None = None
        self.survey = OperatorSurvey()

    def module(self) -> Any:
        """The network as an ``IRModule``."""
        graph = self._model.graph
        opsets = {item.domain: item.version for item in self._model.opset_import}
        scope: Scope = {item.name: _constant(item) for item in graph.initializer}
        for item in graph.sparse_initializer:
            scope[item.values.name] = nodes.relax_constant(nodes.to_dense(item))
        names: Counter[str] = Counter()
        for item in graph.input:
            if item.name in self._values:
                scope[item.name] = nodes.relax_constant(self._values[item.name])
            elif item.name not in scope:
                variable, dtype = self._parameter(item, names)
                self._inputs[variable] = item.name
                scope[item.name] = (variable, dtype)
        with self._builder.function("main", params=list(self._inputs)):
            with self._builder.dataflow():
                for variable, name in self._inputs.items():
                    _, dtype = scope[name]
                    value = (
                        decode_input(self._builder, variable, dtype)
                        if dtype in EMULATED
                        else variable
                    )
                    scope[name] = _fold_empty(value)
                self._convert_network(scope, opsets)
                # TVM warns of functions without an output.
                output_names = (
                    [] if self.survey.unsupported else [item.name for item in graph.output]
                )
                outputs = [self._output(scope, name) for name in output_names] or [relax.const(0.0)]
                result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
                result = self._builder.emit_output(result)
            self._builder.emit_func_output(result)
        self.survey.check()
        return counted.with_counts(self._builder.get())

    def locations_in(self, module: Any) -> dict[str, SourceLocation]:
        """The source location of each variable in a module, by the variable's name."""
        variables = [binding.var for binding in bindings_of(module["main"])]
        return {
            str(item.name): attrs.evolve(location, output=self._outputs_of_nodes.get(item, ""))
            for item in variables
            if (location := self._locations.get(item)) is not None
        }

    def _parameter(self, info: Any, names: Counter[str]) -> tuple[Any, str]:
        value_type = info.type.WhichOneof("value")
        if value_type != "tensor_type":
            raise ConfigError(
                f"input {info.name!r} is a {str(value_type).removesuffix('_type')}, not a tensor",
                hint="Give the network an input for each tensor.",
            )
        tensor = info.type.tensor_type
        shape = self._shapes.get(info.name)
        if shape is None:
            if not tensor.HasField("shape"):
                raise ConfigError(
                    f"the rank of input {info.name!r} is not known",
                    hint=f"Fix its shape under `shapes`: {{{info.name}: [...]}}.",
                )
            shape = [item.dim_value for item in tensor.shape.dim]
        clean = re.sub(r"\W", "_", info.name)
        clean = f"input_{clean}" if clean[:1].isdigit() else clean
        names[clean] += 1
        clean += f"_{names[clean]}" if names[clean] > 1 else ""
        dtype = _dtype(tensor.elem_type, f"input {info.name!r}")
        tensor = relax.TensorType([int(extent) for extent in shape], interface_dtype(dtype))
        return relax.Var(clean, tensor), dtype

    def _output(self, scope: Scope, name: str) -> Any:
        value = scope[name]
        if isinstance(value, list) or value is None:
            raise ConfigError(
                f"output {name!r} is a sequence or left out, not a tensor",
                hint="Give the network an output for each tensor.",
            )
        return encode_output(self._builder, value) if isinstance(value, Emulated) else value

    # The conversion of nodes

    def _convert_network(self, scope: Scope, opsets: Mapping[str, int]) -> None:
        """Convert all nodes; zeros replace the outputs of unsupported ones."""
        survey = self.survey
        for node in self._model.graph.node:
            survey.operators.update(item.op_type for item in _with_inner_nodes(node))
            if any(scope.get(n) is UNKNOWN for item in _with_inner_nodes(node) for n in item.input):
                scope.update(dict.fromkeys(node.output, UNKNOWN))
                if converters.has_operator(node):
                    survey.assumed[node.op_type] += 1
                else:
                    survey.unsupported.append(_unsupported_node(node, _NO_OPERATOR))
                continue
            try:
                self._convert_nodes([node], scope, opsets)
            except _UnsupportedNodeError as error:
                survey.unsupported.append(error.unsupported)
                scope.update({name: self._stand_in(name) for name in node.output if name})
            for name in node.output:
                if isinstance(scope.get(name), relax.Var):
                    self._outputs_of_nodes.setdefault(scope[name], name)

    def _stand_in(self, name: str) -> Any:
        """Zeros of a value's shape and dtype; ``UNKNOWN`` if ONNX cannot infer them."""
        tensor = self._inferred.get(name, onnx.TypeProto()).tensor_type
        dims = tensor.shape.dim
        known = tensor.HasField("shape") and all(item.HasField("dim_value") for item in dims)
        dtype = nodes.dtype_name(tensor.elem_type or 1)
        if not known or dtype not in KERNEL_DTYPES:
            return UNKNOWN
        return self._builder.emit(relax.op.zeros([item.dim_value for item in dims], dtype))

    @cached_property
    def _inferred(self) -> Mapping[str, Any]:
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        for info in model.graph.input:
            for dim, extent in zip(
                info.type.tensor_type.shape.dim, self._shapes.get(info.name, ()), strict=False
            ):
                dim.dim_value = int(extent)
        try:
            graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except Exception as error:  # noqa: BLE001 - of a file that is too large, or of no known operator
            log.info("shapes_not_inferred", problem=first_line(error))
            return {}
        return {value.name: value.type for value in (*graph.value_info, *graph.output)}

    def _convert_nodes(
        self, protos: Sequence[Any], scope: Scope, opsets: Mapping[str, int]
    ) -> None:
        for node in protos:
            if node.op_type in COUNTING and self._counted is None:
                self._counted = counted.CountedAxes.in_builder(self._builder)
            outputs = self._converted(node, scope, opsets)
            sentence = nodes.sentence_of(node)
            location = SourceLocation(owner=nodes.owner_of(node), sentence=sentence)
            pairs = zip(node.output, outputs, strict=False)
            try:
                bound = {name: self._bound(value, location) for name, value in pairs if name}
            except counted.CountedSizeError as error:
                raise _UnsupportedNodeError(_unsupported_node(node, str(error))) from error
            scope.update(bound)

    def _axes_of(self, value: Value) -> counted.Axes:
        """The axes of a value whose sizes are known only when the network runs."""
        value = value.value if isinstance(value, Emulated) else value
        known = self._counted
        return known.of(value) if known and isinstance(value, relax.Expr) else {}

    def _bound(self, value: Value, location: SourceLocation) -> Value:
        """Bind a value to a variable, and note the location of its node."""
        if isinstance(value, Emulated):
            return Emulated(self._bound(value.value, location), value.dtype)
        if isinstance(value, relax.Call | relax.TupleGetItem):
            value = self._builder.emit(value)
        if self._axes_of(value) and 0 in nodes.shape_of(value):
            raise counted.CountedSizeError(f"{counted.COUNTED_SIZE}, and it gives no element")
        value = _fold_empty(value)
        if isinstance(value, relax.Var):
            self._locations.setdefault(value, location)
        return value

    def _converted(self, node: Any, scope: Scope, opsets: Mapping[str, int]) -> list[Value]:
        """Convert a node, and return the values of its outputs."""
        try:
            return self._by_kind(node, scope, opsets)
        except ConstantNeededError as needed:
            names = self._sources(needed.value)
            listed = " and ".join(map(repr, names)) or "something that is computed"
            reason = f"it needs the value of {listed} before"
            unsupported = _unsupported_node(node, reason, hint=_MAKE_CONSTANT, inputs=tuple(names))
            raise _UnsupportedNodeError(unsupported) from needed
        except NodeError as error:
            reason = str(error)
            read = [scope[name] for name in node.input if name]
            if counted.COUNTED_SIZE not in reason and any(map(self._axes_of, read)):
                reason = f"{counted.COUNTED_SIZE}, and with the largest size, {reason}"
            raise _UnsupportedNodeError(_unsupported_node(node, reason)) from error

    def _sources(self, value: Any) -> list[str]:
        """The names of the network's inputs that a value depends on."""
        seen: set[Any] = set()
        inputs_found: list[str] = []
        left = [value.value if isinstance(value, Emulated) else value]
        while left:
            for variable in relax.analysis.free_vars(left.pop()):
                if variable in seen:
                    continue
                seen.add(variable)
                if variable in self._inputs:
                    inputs_found.append(self._inputs[variable])
                else:
                    left.append(self._builder.lookup_binding(variable))
        return inputs_found

    def _by_kind(self, node: Any, scope: Scope, opsets: Mapping[str, int]) -> list[Value]:
        domain = "" if node.domain in nodes.STANDARD_DOMAINS else node.domain
        # A model of other domains may omit the standard's version.
        opset = opsets.get(node.domain, opsets.get(domain) or onnx.defs.onnx_opset_version())
        inputs = [scope[name] if name else None for name in node.input]
        if node.op_type in {"Shape", "Size"} and self._axes_of(inputs[0]):
            raise NodeError(f"{counted.COUNTED_SIZE}, and it gives this size")
        if node.op_type == "CastLike":
            node, inputs = nodes.cast_like_to_cast(node, nodes.dtype_of(inputs[1])), inputs[:1]
        if node.op_type == "Resize":
            inputs = [*inputs[:1], *map(nodes.none_if_empty, inputs[1:])]
        special = CONTROL_FLOW.get(node.op_type) if not domain else None
        if special is not None:
            return special(self, node, inputs, scope, opsets)
        if nodes.is_foldable(node, inputs):
            with contextlib.suppress(NodeError):  # a converter may handle the node
                return nodes.evaluate_node(node, inputs, opset)
        schema = nodes.schema_of(node, domain, opset)
        args = Node(
            builder=self._builder,
            op_type=node.op_type,
            inputs=tuple(value.value if isinstance(value, Emulated) else value for value in inputs),
            emulated_dtypes=tuple(
                value.dtype if isinstance(value, Emulated) else None for value in inputs
            ),
            attributes=nodes.attributes_of(node, schema),
            opset=opset,
            outputs=len(node.output),
            counted=self._counted,
        )
        for place in nodes.CONSTANT_INPUTS.get(node.op_type, ()):
            args.known(place)
        return self._by_operator(node, args, inputs, schema)

    def _by_operator(
        self, node: Any, args: Node, inputs: Sequence[Value], schema: Any
    ) -> list[Value]:
        """Convert a node with a converter, or else with the standard's function for it."""
        problem: Exception = NodeError(_NO_OPERATOR)
        if node.domain in converters.DOMAINS:
            try:
                return _with_emulated_dtypes(
                    _check_extents(self._by_converter(node, args)), args, schema
                )
            except ConstantNeededError:
                raise
            except Exception as error:  # noqa: BLE001 - TVM's converters raise whatever comes
                problem = error
                # A converter's own reason comes first: the shape may depend on values.
                has_reason = isinstance(error, NodeError)
                empty = None if has_reason else _empty_outputs(node, inputs, args.opset)
                if empty is not None:
                    return empty
        body = nodes.function_body(node, schema, inputs, args.opset)
        if body is not None:
            return self._by_body(node, body, inputs, schema)
        if isinstance(problem, NodeError):
            raise problem
        raise NodeError(first_line(problem)) from problem

    def _by_converter(self, node: Any, args: Node) -> list[Value]:
        """Convert a node with Chameleon's converter of its operator, or else with TVM's."""
        convert = converters.CONVERTERS.get(node.op_type)
        values = NotImplemented if convert is None else convert(args)
        if values is NotImplemented:
            return self._by_tvm(node, args)
        values = values if isinstance(values, list | tuple) else [values]
        # Normalization infers the type, and so reports an invalid expression here.
        return [
            self._builder.normalize(value) if isinstance(value, relax.Call) else value
            for value in values
        ]

    def _by_tvm(self, node: Any, args: Node) -> list[Value]:
        """Convert a node with TVM's converter of its operator."""
        converter = _get_convert_map().get(node.op_type)
        if converter is None:
            raise NodeError(_NO_OPERATOR)
        if any(isinstance(value, list) for value in args.inputs):
            raise NodeError("it reads a sequence")
        inputs = onnx_input()
        inputs.extend(args.inputs)
        attributes = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in nodes.attributes_of(node, None).items()
        }
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        with contextlib.redirect_stdout(io.StringIO()):
            result = converter.get_converter(args.opset)(
                self._builder, inputs, attributes, [{}, {}]
            )
        result = self._builder.normalize(result)
        if isinstance(result, relax.Tuple):
            values = list(result)
        elif isinstance(result.ty, relax.TupleType):
            whole = self._builder.emit(result)
            values = [relax.TupleGetItem(whole, i) for i in range(len(result.ty.fields))]
        else:
            values = [result]
        if len(values) < len(node.output):
            raise NodeError(f"the compiler gives {len(values)} of its {len(node.output)} outputs")
        for value in values:
            emitted = self._builder.normalize(value)
            if not isinstance(emitted.ty, relax.TensorType) or static_shape(emitted.ty) is None:
                raise NodeError(nodes.UNKNOWN_SHAPE)
        return values

    def _by_body(self, node: Any, body: Any, inputs: Sequence[Value], schema: Any) -> list[Value]:
        """Convert a node with the nodes of the function that the standard has for its operator."""
        opsets = {item.domain: item.version for item in body.opset_import}
        usual = (attribute.default_value for attribute in schema.attributes.values())
        attributes = {
            attribute.name: attribute
            for attribute in (*usual, *body.attribute_proto, *node.attribute)
            if attribute.name
        }
        scope: Scope = dict.fromkeys(body.input)
        scope.update(zip(body.input, inputs, strict=False))
        protos = [nodes.bind_attributes(item, attributes, node) for item in body.node]
        try:
            self._convert_nodes(protos, scope, opsets)
        except _UnsupportedNodeError as error:
            inner = error.unsupported
            reason = f"{inner.reason} (in its {inner.operator})"
            raise _UnsupportedNodeError(
                _unsupported_node(node, reason, hint=inner.hint, inputs=inner.inputs)
            ) from error
        # The body of a function computes only the outputs that the node names.
        return [scope.get(name) for name in body.output]

    # Sequences and control flow, whose lengths and conditions are known

    def run_graph(
        self, graph: Any, inputs: Sequence[Value], scope: Scope, opsets: Mapping[str, int]
    ) -> list[Value]:
        """Convert a graph inside a node, such as the body of a loop, and return its outputs."""
        inner = {**scope, **{item.name: _constant(item) for item in graph.initializer}}
        inner.update(zip((item.name for item in graph.input), inputs, strict=True))
        self._convert_nodes(graph.node, inner, opsets)
        return [inner[item.name] for item in graph.output]

    def choose(self, condition: Any, branches: Sequence[list[Value]]) -> list[Value]:
        """Select the outputs of one branch of an ``If`` whose condition the network computes."""
        chosen = []
        if nodes.shape_of(condition):  # the condition may be a tensor of one element
            condition = self._builder.emit(relax.op.reshape(condition, []))
        for yes, no in zip(*branches, strict=True):
            tensors = all(isinstance(item, relax.Expr | Emulated) for item in (yes, no))
            dtypes = [(nodes.shape_of(item), nodes.dtype_of(item)) for item in (yes, no) if tensors]
            if not tensors or dtypes[0] != dtypes[1]:
                raise NodeError("its condition is computed, and its branches give different shapes")
            dtype = yes.dtype if isinstance(yes, Emulated) else None
            parts = (item.value if isinstance(item, Emulated) else item for item in (yes, no))
            result = self._builder.emit(relax.op.where(condition, *parts))
            chosen.append(Emulated(result, dtype) if dtype else result)
        return chosen

    def emit(self, value: Any) -> Any:
        """Bind an expression to a variable, and return the variable."""
        return self._builder.emit(value)


def _unsupported_node(
    node: Any, reason: str, *, hint: str = "", inputs: tuple[str, ...] = ()
) -> UnsupportedNode:
    usual = converters.ONNXRUNTIME_HINT if node.domain == ONNXRUNTIME_DOMAIN else WAY_OUT
    return UnsupportedNode(
        operator=node.op_type,
        sentence=nodes.sentence_of(node),
        reason=reason,
        hint=hint or usual,
        inputs=inputs,
    )


def _with_inner_nodes(node: Any) -> Iterator[Any]:
    """Yield a node, and the nodes of the graphs that are attributes of the node."""
    yield node
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for inner in graph.node:
                yield from _with_inner_nodes(inner)


def _with_emulated_dtypes(values: list[Value], node: Node, schema: Any) -> list[Value]:
    """Give a node's outputs the dtypes that they represent, as the inputs' dtypes imply."""
    if schema is None or not any(node.emulated_dtypes):
        return values
    dtypes = {}
    for place, dtype in enumerate(node.emulated_dtypes):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        if dtype:
            dtypes[formal.type_str] = dtype
    typed: list[Value] = []
    for place, value in enumerate(values):
        dtype = dtypes.get(schema.outputs[min(place, len(schema.outputs) - 1)].type_str)
        typed.append(Emulated(value, dtype) if dtype and isinstance(value, relax.Expr) else value)
    return typed


def _fold_empty(value: Value) -> Value:
    """Replace an empty tensor by a constant, since TVM fails at many empty tensors."""
    if isinstance(value, relax.Expr) and 0 in (static_shape(value.ty) or ()):
        return nodes.relax_constant(np.zeros(nodes.shape_of(value), nodes.dtype_of(value)))
    return value


def _empty_outputs(node: Any, inputs: Sequence[Value], opset: int) -> list[Value] | None:
    """The outputs of a node if they are empty for all values of its inputs, else None."""
    if any(isinstance(value, list) for value in inputs):
        return None
    zeros = [
        value
        if value is None or nodes.is_constant(value)
        # An empty output is empty for any input values.
        else nodes.relax_constant(np.zeros(nodes.shape_of(value), nodes.dtype_of(value)))
        for value in inputs
    ]
    try:
        outputs = nodes.evaluate_node(node, zeros, opset)
    except NodeError:
        return None
    return outputs if all(out is None or 0 in nodes.shape_of(out) for out in outputs) else None


def _constant(tensor: Any) -> Any:
    return nodes.relax_constant(onnx.numpy_helper.to_array(tensor))


def _dtype(element_type: int, what: str) -> str:
    """The name of the dtype that an ONNX tensor type number stands for."""
    name = nodes.dtype_name(element_type)
    if element_type == onnx.TensorProto.STRING or name.startswith("complex"):
        word = onnx.TensorProto.DataType.Name(element_type).lower()
        raise ConfigError(f"{what} has the type {word}", hint=WAY_OUT)
    return name


def _check_extents(values: list[Value]) -> list[Value]:
    """See that no extent is negative, which TVM accepts until it has no code for it."""
    for value in values:
        dtype: Any = getattr(value, "ty", None)
        if isinstance(dtype, relax.TensorType) and min(static_shape(dtype) or (), default=0) < 0:
            raise NodeError("a window is larger than the image with its padding")
    return values
