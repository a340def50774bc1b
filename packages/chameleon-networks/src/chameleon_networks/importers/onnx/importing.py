"""ONNX graphs as Relax has them: constants computed, control flow unrolled, operators converted.

Every node is converted by one of four, in this order: ONNX's own reference where it reads constants
alone, a converter of ours, TVM's, and the function body that the standard defines it with.
"""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from chameleon_core.errors import ConfigError
from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.words import WAY_OUT, first_line
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map, onnx_input

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.graph.steps import is_quantized, is_rounded
from chameleon_networks.importers.onnx.control import SPECIAL
from chameleon_networks.importers.onnx.converters import BODIES_FIRST, CONVERTERS
from chameleon_networks.importers.onnx.nodes import (
    VALUES,
    Node,
    Unsupported,
    Value,
    ValueNeeded,
    dtype_of,
    is_constant,
    known_array,
    relax_constant,
    shape_of,
)
from chameleon_networks.importers.onnx.quantized import ONNXRUNTIME_DOMAIN
from chameleon_networks.importers.onnx.typed import TYPES, Typed, interface, read, written
from chameleon_networks.source_location import ImportedGraph, SourceLocation

Scope = dict[str, Value]
_STANDARD = {"", "ai.onnx"}


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
            scope[one.values.name] = relax_constant(_dense(one))
        names: dict[str, int] = {}
        for one in graph.input:
            if one.name in self._values:
                scope[one.name] = relax_constant(self._values[one.name])
            elif one.name not in scope:
                variable, kind = self._parameter(one, names)
                self._inputs[variable] = one.name
                scope[one.name] = (variable, kind)
        _check_operators(graph)
        with self._builder.function("main", params=list(self._inputs)):
            with self._builder.dataflow():
                for variable, name in self._inputs.items():
                    _, kind = scope[name]
                    scope[name] = read(self.emit, variable, kind) if kind in TYPES else variable
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
        return written(self.emit, value) if isinstance(value, Typed) else value

    # Nodes

    def _convert_nodes(self, nodes: Sequence[Any], scope: Scope, opsets: Mapping[str, int]) -> None:
        for node in nodes:
            outputs = self._converted(node, scope, opsets)
            sentence = _sentence(node.name, node.op_type)
            location = SourceLocation(owner=_owner(node), sentence=sentence)
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
        if isinstance(value, relax.Var):
            self._locations.setdefault(value, location)
        return value

    def _converted(self, node: Any, scope: Scope, opsets: Mapping[str, int]) -> list[Value]:
        """The values of a node's outputs.

        Raises:
            ConfigError: it cannot be compiled; names it.
        """
        where = _sentence(node.name, node.op_type)
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
        domain = "" if node.domain in _STANDARD else node.domain
        opset = opsets.get(node.domain, opsets.get(domain, 1))
        inputs = [scope[name] if name else None for name in node.input]
        special = SPECIAL.get(node.op_type) if not domain else None
        if special is not None:
            return special(self, node, inputs, scope, opsets)
        if _folds(node, inputs):
            return _evaluated(node, inputs, opset)
        schema = _schema(node, domain, opset)
        given = Node(
            emit=self._builder.emit,
            kind=node.op_type,
            inputs=tuple(one.value if isinstance(one, Typed) else one for one in inputs),
            kinds=tuple(one.kind if isinstance(one, Typed) else None for one in inputs),
            attributes=_attributes(node, schema),
            opset=opset,
            outputs=len(node.output),
            set_attributes=frozenset(one.name for one in node.attribute),
        )
        for place in VALUES.get(node.op_type, ()):
            given.known(place)
        convert = CONVERTERS.get(node.op_type) if domain in {"", ONNXRUNTIME_DOMAIN} else None
        if convert is not None:
            made = convert(given)
            values = list(made) if isinstance(made, list | tuple) else [made]
            return _typed(values, given, schema)
        problem: Exception | None = None
        if node.op_type not in BODIES_FIRST and domain in {"", ONNXRUNTIME_DOMAIN}:
            try:
                return _typed(self._by_tvm(node, given), given, schema)
            except Exception as error:  # noqa: BLE001 - its converters raise whatever comes
                problem = error
        body = _body(node, schema, inputs, opset)
        if body is not None:
            return self._by_body(node, body, inputs)
        if problem is None:
            raise Unsupported("the compiler has no such operator")
        raise Unsupported(first_line(problem)) from problem

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
            for name, value in _attributes(node, None).items()
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

    def _by_body(self, node: Any, body: Any, inputs: Sequence[Value]) -> list[Value]:
        """What the nodes of an operator's function make of it."""
        opsets = {one.domain: one.version for one in body.opset_import}
        given = {one.name: one for one in node.attribute}
        given = {**{one.name: one for one in body.attribute_proto}, **given}
        scope: Scope = dict.fromkeys(body.input)
        scope.update(zip(body.input, inputs, strict=False))
        nodes = [_with_attributes(one, given, node) for one in body.node]
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
        """What an ``If`` gives, of what both of its branches give."""
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
    made = []
    for place, value in enumerate(values):
        formal = schema.outputs[min(place, len(schema.outputs) - 1)]
        kind = kinds.get(formal.type_str)
        stands = isinstance(value, relax.Expr) and kind is not None
        made.append(Typed(value, kind) if stands else value)
    return made


def _constant(tensor: Any) -> Any:
    return relax_constant(onnx.numpy_helper.to_array(tensor))


def _dense(sparse: Any) -> NDArray[Any]:
    values, places = map(onnx.numpy_helper.to_array, (sparse.values, sparse.indices))
    made = np.zeros(list(sparse.dims), values.dtype)
    if places.ndim == 1:
        made.reshape(-1)[places] = values
    else:
        made[tuple(places.T)] = values
    return made


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


_NOT_FOLDED = frozenset(
    (
        *("QuantizeLinear", "DequantizeLinear", "Bernoulli", "Multinomial", "Dropout"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
"""Steps of quantization stay steps, and random numbers are drawn anew each time."""


def _folds(node: Any, inputs: Sequence[Value]) -> bool:
    return node.op_type not in _NOT_FOLDED and all(
        value is None or is_constant(value) for value in inputs
    )


def _evaluated(node: Any, inputs: Sequence[Value], opset: int) -> list[Value]:
    """The outputs of a node that reads constants alone, computed by ONNX's reference."""
    feeds = {
        name: known_array(value)
        for name, value in zip(node.input, inputs, strict=True)
        if value is not None
    }
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(node, opsets={node.domain: opset, "": opset})
            made = evaluator.run(None, feeds)
    except Exception as error:
        raise Unsupported(f"ONNX's reference cannot compute it: {first_line(error)}") from error
    return [
        [relax_constant(part) for part in one] if isinstance(one, list) else relax_constant(one)
        for one in made
    ]


def _schema(node: Any, domain: str, opset: int) -> Any | None:
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _attributes(node: Any, schema: Any) -> dict[str, Any]:
    """A node's attributes by name, with the standard's values of those that it leaves out."""
    found = {}
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                found[name] = _plain(onnx.helper.get_attribute_value(attribute.default_value))
    found.update({one.name: _plain(onnx.helper.get_attribute_value(one)) for one in node.attribute})
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return tuple(_plain(one) for one in value)
    return value


def _body(node: Any, schema: Any, inputs: Sequence[Value], opset: int) -> Any | None:
    """The function that the standard defines an operator with, or None."""
    if schema is None:
        return None
    if schema.has_function:
        versions = [one for one in schema.function_opset_versions if one <= opset]
        if versions:
            raw = schema.get_function_with_opset_version(max(versions))
            return _parsed(raw)
    if schema.has_context_dependent_function:
        versions = [one for one in schema.context_dependent_function_opset_versions if one <= opset]
        kinds = [_type_of(value).SerializeToString() for value in inputs]
        if versions:
            raw = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), kinds
            )
            return _parsed(raw)
    return None


def _parsed(raw: bytes) -> Any | None:
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
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value)))
    return onnx.helper.make_tensor_type_proto(kind, shape_of(value))


def _with_attributes(node: Any, given: Mapping[str, Any], caller: Any) -> Any:
    """A node of a function with the caller's attributes where it refers to them."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for one in node.attribute:
        if one.ref_attr_name and one.ref_attr_name not in given:
            continue
        attribute = made.attribute.add()
        attribute.CopyFrom(given[one.ref_attr_name] if one.ref_attr_name else one)
        attribute.name = one.name
        if attribute.HasField("g"):
            nodes = [_with_attributes(inner, given, caller) for inner in attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(nodes)
    made.name = caller.name
    del made.metadata_props[:]
    made.metadata_props.extend(caller.metadata_props)
    return made


def _check_operators(graph: Any) -> None:
    """Refuse a graph with all of its operators that nothing converts, and how often each occurs.

    Raises:
        ConfigError: there are some.
    """
    lacking = list(_lacking(graph))
    if lacking:
        counts: dict[str, int] = {}
        for node in lacking:
            counts[_sentence(node.name, node.op_type)] = 1
        foreign = any(node.domain == ONNXRUNTIME_DOMAIN for node in lacking)
        hint = _IN_THE_STANDARD if foreign else WAY_OUT
        raise ConfigError(f"the compiler has no operator for {', '.join(counts)}", hint=hint)


def _lacking(graph: Any) -> Iterator[Any]:
    known = {*_get_convert_map(), *CONVERTERS, *SPECIAL}
    for node in graph.node:
        if node.op_type in known and node.domain in {*_STANDARD, ONNXRUNTIME_DOMAIN}:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, node.domain)
        except onnx.defs.SchemaError:
            schema = None
        if schema is None or not (schema.has_function or schema.has_context_dependent_function):
            yield node


_IN_THE_STANDARD = (
    "It is none of the standard's, but onnxruntime's own: save the network before onnxruntime "
    "fuses it, and quantize it in the QDQ format (quant_format=QuantFormat.QDQ)."
)


_SCOPES, _WEIGHT = "pkg.torch.onnx.name_scopes", ".weight"


def _owner(node: Any) -> str:
    """The torch module that a node is of, if torch has exported it, else the node's name."""
    scopes = next((one.value for one in node.metadata_props if one.key == _SCOPES), None)
    if scopes is None:
        return str(node.name)
    # The exporter folds normalisations into convolutions, which have their scopes from then on.
    weights = (name.removesuffix(_WEIGHT) for name in node.input if name.endswith(_WEIGHT))
    try:
        # The modules from outside in, and the call.
        *_, module, _ = ast.literal_eval(scopes)
    except (SyntaxError, ValueError):
        module = ""
    return str(next(weights, module) or node.name)


def _sentence(name: str, kind: str) -> str:
    return f"node {name!r} ({kind})" if name else f"a node {kind}"
