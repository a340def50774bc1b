"""ONNX graphs as Relax has them: constants computed, control flow unrolled, operators converted.

ONNX's own reference computes a node that reads constants alone. Others have a converter of ours,
TVM's, or a function of the standard's, in this order.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from chameleon_core.errors import ConfigError
from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.words import WAY_OUT, first_line
from numpy.typing import NDArray
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map, onnx_input

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.graph.steps import is_quantized, is_rounded
from chameleon_networks.importers.onnx.control import SPECIAL
from chameleon_networks.importers.onnx.converters import CONVERTERS, DOMAINS, check_operators
from chameleon_networks.importers.onnx.nodes import (
    VALUES,
    Node,
    Unsupported,
    Value,
    ValueNeeded,
    dense,
    dtype_of,
    evaluated,
    is_constant,
    is_folded,
    owner_of,
    relax_constant,
    sentence_of,
    shape_of,
)
from chameleon_networks.importers.onnx.standard import (
    STANDARD,
    as_cast,
    attributes_of,
    body_of,
    schema_of,
    with_attributes,
)
from chameleon_networks.importers.onnx.typed import TYPES, Typed, interface, read, written
from chameleon_networks.source_location import ImportedGraph, SourceLocation

Scope = dict[str, Value]


class InputNeededError(ConfigError):
    """An operator needs the value of inputs of the network before it is compiled.

    Attributes:
        names: of the inputs.
    """

    def __init__(self, message: str, names: Sequence[str]) -> None:
        hint = "Make it a constant of the file (an initializer), as its value decides on shapes."
        super().__init__(message, hint=hint)
        self.names = tuple(names)


def imported(
    model: Any,
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, NDArray[Any]] | None = None,
) -> ImportedGraph:
    """An ONNX model as Relax has it; its variables come from nodes.

    Args:
        model: an ``onnx.ModelProto``.
        shapes: of inputs that it leaves open, by name.
        values: of inputs that are constants from now on, by name.

    Raises:
        InputNeededError: an operator needs the value of an input.
        ConfigError: a node cannot be read; names it.
    """
    importer = _Importer(model, shapes, values or {})
    module = importer.module()
    return ImportedGraph(
        module=module,
        locations=importer.locations_in(module),
        is_quantized=is_quantized(module),
        is_rounded=is_rounded(module),
    )


class _Importer:
    """Converts a model node by node, and remembers which node each variable is of."""

    def __init__(
        self,
        model: Any,
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, NDArray[Any]],
    ) -> None:
        self._model = onnx.inliner.inline_local_functions(model) if model.functions else model
        self._shapes, self._values = shapes, values
        self._builder = relax.BlockBuilder()
        self._locations: dict[Any, SourceLocation] = {}
        self._inputs: dict[Any, str] = {}

    def module(self) -> Any:
        """The network as an ``IRModule``."""
        graph = self._model.graph
        opsets = {one.domain: one.version for one in self._model.opset_import}
        scope: Scope = {one.name: _constant(one) for one in graph.initializer}
        for one in graph.sparse_initializer:
            scope[one.values.name] = relax_constant(dense(one))
        names: dict[str, int] = {}
        for one in graph.input:
            if one.name in self._values:
                scope[one.name] = relax_constant(self._values[one.name])
            elif one.name not in scope:
                variable, kind = self._parameter(one, names)
                self._inputs[variable] = one.name
                scope[one.name] = (variable, kind)
        check_operators(graph)
        with self._builder.function("main", params=list(self._inputs)):
            with self._builder.dataflow():
                for variable, name in self._inputs.items():
                    _, kind = scope[name]
                    value = read(self._builder, variable, kind) if kind in TYPES else variable
                    scope[name] = _without_numbers(value)
                self._convert_nodes(graph.node, scope, opsets)
                outputs = [self._output(scope, one.name) for one in graph.output]
                result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
                result = self._builder.emit_output(result)
            self._builder.emit_func_output(result)
        return self._builder.get()

    def locations_in(self, module: Any) -> dict[str, SourceLocation]:
        """The node whose output each variable is, by the variable's name."""
        found = {}
        for block in module["main"].body.blocks:
            for binding in block.bindings:
                location = self._locations.get(binding.var)
                if location is not None:
                    found[str(binding.var.name)] = location
        return found

    def _parameter(self, given: Any, names: dict[str, int]) -> tuple[Any, str]:
        kind = given.type.WhichOneof("value")
        if kind != "tensor_type":
            raise ConfigError(
                f"input {given.name!r} is a {str(kind).removesuffix('_type')}, not a tensor",
                hint="Give the network an input for each tensor.",
            )
        tensor = given.type.tensor_type
        shape = self._shapes.get(given.name)
        if shape is None:
            if not tensor.HasField("shape"):
                raise ConfigError(
                    f"the rank of input {given.name!r} is not known",
                    hint=f"Fix its shape under `shapes`: {{{given.name}: [...]}}.",
                )
            shape = [one.dim_value for one in tensor.shape.dim]
        clean = "".join(c if c.isalnum() or c == "_" else "_" for c in given.name)
        clean = clean if clean[:1].isalpha() or clean[:1] == "_" else f"input_{clean}"
        names[clean] = names.get(clean, 0) + 1
        clean += f"_{names[clean]}" if names[clean] > 1 else ""
        dtype = _dtype(tensor.elem_type, f"input {given.name!r}")
        tensor = relax.TensorType([int(extent) for extent in shape], interface(dtype))
        return relax.Var(clean, tensor), dtype

    def _output(self, scope: Scope, name: str) -> Any:
        value = scope[name]
        if isinstance(value, list) or value is None:
            raise ConfigError(
                f"output {name!r} is a sequence or left out, not a tensor",
                hint="Give the network an output for each tensor.",
            )
        return written(self._builder, value) if isinstance(value, Typed) else value

    # Nodes

    def _convert_nodes(self, nodes: Sequence[Any], scope: Scope, opsets: Mapping[str, int]) -> None:
        for node in nodes:
            outputs = self._converted(node, scope, opsets)
            sentence = sentence_of(node)
            location = SourceLocation(owner=owner_of(node), sentence=sentence)
            for name, value in zip(node.output, outputs, strict=False):
                if not name:
                    continue
                scope[name] = self._bound(value, location)

    def _bound(self, value: Value, location: SourceLocation) -> Value:
        """A value that is a variable, of the node at a location."""
        if isinstance(value, Typed):
            return Typed(self._bound(value.value, location), value.kind)
        if isinstance(value, relax.Call | relax.TupleGetItem):
            value = self._builder.emit(value)
        value = _without_numbers(value)
        if isinstance(value, relax.Var):
            self._locations.setdefault(value, location)
        return value

    def _converted(self, node: Any, scope: Scope, opsets: Mapping[str, int]) -> list[Value]:
        """The values of a node's outputs.

        Raises:
            ConfigError: it cannot be compiled; names it.
        """
        where = sentence_of(node)
        try:
            return self._by_kind(node, scope, opsets)
        except ValueNeeded as needed:
            names = self._sources(needed.value)
            listed = " and ".join(map(repr, names)) or "something that is computed"
            raise InputNeededError(
                f"{where} needs the value of {listed} before the network is compiled", names
            ) from needed
        except Unsupported as error:
            raise ConfigError(f"{where} cannot be compiled: {error}", hint=WAY_OUT) from error

    def _sources(self, value: Any) -> list[str]:
        """The network's inputs that a value follows from."""
        seen: set[Any] = set()
        found: list[str] = []
        left = [value.value if isinstance(value, Typed) else value]
        while left:
            for variable in relax.analysis.free_vars(left.pop()):
                if variable in seen:
                    continue
                seen.add(variable)
                if variable in self._inputs:
                    found.append(self._inputs[variable])
                else:
                    left.append(self._builder.lookup_binding(variable))
        return found

    def _by_kind(self, node: Any, scope: Scope, opsets: Mapping[str, int]) -> list[Value]:
        domain = "" if node.domain in STANDARD else node.domain
        # A model of other domains may leave the standard's version out.
        opset = opsets.get(node.domain, opsets.get(domain) or onnx.defs.onnx_opset_version())
        inputs = [scope[name] if name else None for name in node.input]
        if node.op_type == "CastLike":
            node, inputs = as_cast(node, dtype_of(inputs[1])), inputs[:1]
        special = SPECIAL.get(node.op_type) if not domain else None
        if special is not None:
            return special(self, node, inputs, scope, opsets)
        if is_folded(node, inputs):
            return evaluated(node, inputs, opset)
        schema = schema_of(node, domain, opset)
        given = Node(
            builder=self._builder,
            kind=node.op_type,
            inputs=tuple(value.value if isinstance(value, Typed) else value for value in inputs),
            kinds=tuple(value.kind if isinstance(value, Typed) else None for value in inputs),
            attributes=attributes_of(node, schema),
            opset=opset,
            outputs=len(node.output),
            set_attributes=frozenset(attribute.name for attribute in node.attribute),
        )
        for place in VALUES.get(node.op_type, ()):
            given.known(place)
        return self._by_operator(node, given, inputs, schema)

    def _by_operator(
        self, node: Any, given: Node, inputs: Sequence[Value], schema: Any
    ) -> list[Value]:
        """What a converter makes of a node, or the nodes of a function of the standard's."""
        problem: Exception = Unsupported("the compiler has no such operator")
        if node.domain in DOMAINS:
            try:
                return _typed(self._by_converter(node, given), given, schema)
            except ValueNeeded:
                raise
            except Exception as error:  # noqa: BLE001 - TVM's converters raise whatever comes
                problem = error
                empty = _empty_outputs(node, inputs, given.opset)
                if empty is not None:
                    return empty
        body = body_of(node, schema, inputs, given.opset)
        if body is not None:
            return self._by_body(node, body, inputs, schema)
        if isinstance(problem, Unsupported):
            raise problem
        raise Unsupported(first_line(problem)) from problem

    def _by_converter(self, node: Any, given: Node) -> list[Value]:
        """What a converter of ours makes of an operator, or TVM's."""
        convert = CONVERTERS.get(node.op_type)
        values = NotImplemented if convert is None else convert(given)
        if values is NotImplemented:
            return self._by_tvm(node, given)
        values = values if isinstance(values, list | tuple) else [values]
        # What is wrong with an expression is known as soon as it has a type.
        return [
            self._builder.normalize(value) if isinstance(value, relax.Call) else value
            for value in values
        ]

    def _by_tvm(self, node: Any, given: Node) -> list[Value]:
        """What TVM's converter of an operator makes of it."""
        kind = _get_convert_map().get(node.op_type)
        if kind is None:
            raise Unsupported("the compiler has no such operator")
        for value in given.inputs:
            if isinstance(value, list):
                raise Unsupported("it reads a sequence")
        inputs = onnx_input()
        inputs.extend(given.inputs)
        attributes = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in attributes_of(node, None).items()
        }
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        with contextlib.redirect_stdout(io.StringIO()):
            made = kind.get_converter(given.opset)(self._builder, inputs, attributes, [{}, {}])
        made = self._builder.normalize(made)
        if isinstance(made, relax.Tuple):
            values = list(made)
        elif isinstance(made.ty, relax.TupleType):
            whole = self._builder.emit(made)
            values = [relax.TupleGetItem(whole, i) for i in range(len(made.ty.fields))]
        else:
            values = [made]
        if len(values) < len(node.output):
            raise Unsupported(f"the compiler gives {len(values)} of its {len(node.output)} outputs")
        for value in values:
            emitted = self._builder.normalize(value)
            if not isinstance(emitted.ty, relax.TensorType) or not _is_static(emitted.ty):
                raise Unsupported("the shape of what it gives depends on the numbers it reads")
        return values

    def _by_body(self, node: Any, body: Any, inputs: Sequence[Value], schema: Any) -> list[Value]:
        """What the nodes of an operator's function make of it."""
        opsets = {one.domain: one.version for one in body.opset_import}
        usual = (attribute.default_value for attribute in schema.attributes.values())
        given = {
            attribute.name: attribute
            for attribute in (*usual, *body.attribute_proto, *node.attribute)
            if attribute.name
        }
        scope: Scope = dict.fromkeys(body.input)
        scope.update(zip(body.input, inputs, strict=False))
        nodes = [with_attributes(one, given, node) for one in body.node]
        self._convert_nodes(nodes, scope, opsets)
        # The standard writes no more than the outputs that the node names.
        return [scope.get(name) for name in body.output]

    # Sequences and control flow, whose lengths and conditions are known

    def run_graph(
        self, graph: Any, inputs: Sequence[Value], scope: Scope, opsets: Mapping[str, int]
    ) -> list[Value]:
        """The outputs of a graph that is an attribute of a node."""
        inner = {**scope, **{one.name: _constant(one) for one in graph.initializer}}
        inner.update(zip((one.name for one in graph.input), inputs, strict=True))
        self._convert_nodes(graph.node, inner, opsets)
        return [inner[one.name] for one in graph.output]

    def choose(self, condition: Any, branches: Sequence[list[Value]]) -> list[Value]:
        """An ``If`` between the outputs of both of its branches."""
        chosen = []
        for yes, no in zip(*branches, strict=True):
            tensors = all(isinstance(one, relax.Expr | Typed) for one in (yes, no))
            if not tensors or shape_of(yes) != shape_of(no) or dtype_of(yes) != dtype_of(no):
                raise Unsupported(
                    "its condition is computed, and its branches give different shapes"
                )
            kind = yes.kind if isinstance(yes, Typed) else None
            parts = (one.value if isinstance(one, Typed) else one for one in (yes, no))
            made = self._builder.emit(relax.op.where(condition, *parts))
            chosen.append(Typed(made, kind) if kind else made)
        return chosen

    def emit(self, value: Any) -> Any:
        """A value bound to a variable."""
        return self._builder.emit(value)


def _typed(values: list[Value], node: Node, schema: Any) -> list[Value]:
    """A node's outputs in the types that its inputs stand for."""
    if schema is None or not any(node.kinds):
        return values
    kinds = {}
    for place, kind in enumerate(node.kinds):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        if kind:
            kinds[formal.type_str] = kind
    typed: list[Value] = []
    for place, value in enumerate(values):
        kind = kinds.get(schema.outputs[min(place, len(schema.outputs) - 1)].type_str)
        typed.append(Typed(value, kind) if kind and isinstance(value, relax.Expr) else value)
    return typed


def _without_numbers(value: Value) -> Value:
    """An empty tensor as a constant, since TVM fails at many of them; others as they are."""
    if isinstance(value, relax.Expr) and _is_static(value.ty) and 0 in shape_of(value):
        return relax_constant(np.zeros(shape_of(value), dtype_of(value)))
    return value


def _empty_outputs(node: Any, inputs: Sequence[Value], opset: int) -> list[Value] | None:
    """A node's outputs if they are empty whatever it reads, else None."""
    if any(isinstance(value, list) for value in inputs):
        return None
    zeros = [
        value
        if value is None or is_constant(value)
        # What is empty is so for any numbers.
        else relax_constant(np.zeros(shape_of(value), dtype_of(value)))
        for value in inputs
    ]
    try:
        outputs = evaluated(node, zeros, opset)
    except Unsupported:
        return None
    return outputs if all(value is None or 0 in shape_of(value) for value in outputs) else None


def _constant(tensor: Any) -> Any:
    return relax_constant(onnx.numpy_helper.to_array(tensor))


def _dtype(kind: int, what: str) -> str:
    """The name of an element type."""
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).name
    if kind == onnx.TensorProto.STRING or name.startswith("complex"):
        word = onnx.TensorProto.DataType.Name(kind).lower()
        raise ConfigError(f"{what} has the type {word}", hint=WAY_OUT)
    return str(name)


def _is_static(kind: Any) -> bool:
    shape = getattr(kind, "shape", None)
    return shape is not None and all(isinstance(one, tvm.tirx.IntImm) for one in shape)
