"""TVM's importer of ONNX graphs, with the node of what it refuses."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.words import WAY_OUT, first_line
from numpy.typing import NDArray
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from chameleon_networks.graph.constants import array_of, evaluate
from chameleon_networks.graph.relaxed import relax
from chameleon_networks.graph.steps import is_quantized, is_rounded
from chameleon_networks.importers.onnx.quantized import ONNXRUNTIME_DOMAIN
from chameleon_networks.source_location import ImportedGraph, SourceLocation

Emit = Callable[[Any], Any]
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
_INPUTS = {"LSTM": 8, "GRU": 6}
_GATES = {"LSTM": 4, "GRU": 3}


def _recurrent(kind: str) -> Callable[..., Any]:
    """A recurrent network as one product for all steps' inputs, and the steps one by one."""

    def convert(emit: Emit, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        given = [*inputs, *[None] * (_INPUTS[kind] - len(inputs))]
        x, weights, recurrent, bias, lengths, first, *cells = given
        _check(kind, attrs, lengths, peepholes=cells[1] if len(cells) > 1 else None)
        steps, batch, _ = (int(extent) for extent in x.ty.shape)
        hidden = int(attrs["hidden_size"])
        directions = _DIRECTIONS[_text(attrs.get("direction", "forward"))]
        w, r = _constant(weights), _constant(recurrent)
        gates = _GATES[kind]
        b = (
            np.zeros((len(directions), 2 * gates * hidden), w.dtype)
            if bias is None
            else _constant(bias)
        )
        sequences, states = [], []
        for place, backwards in enumerate(directions):
            state = [
                _start(emit, one, place, (batch, hidden), w.dtype)
                for one in (first, *cells[: 1 if kind == "LSTM" else 0])
            ]
            step = _STEPS[kind](emit, r[place], b[place], hidden, attrs)
            inside = _projected(emit, x, w[place], b[place][: gates * hidden])
            order = range(steps)[::-1] if backwards else range(steps)
            found: dict[int, Any] = {}
            for time in order:
                state = step(inside[time], state)
                found[time] = state[0]
            sequences.append(emit(relax.op.stack([found[time] for time in range(steps)], 0)))
            states.append(state)
        last = [emit(relax.op.stack(list(parts), 0)) for parts in zip(*states, strict=True)]
        return relax.Tuple([emit(relax.op.stack(sequences, 1)), *last])

    return convert


def _check(kind: str, attrs: Mapping[str, Any], lengths: Any, *, peepholes: Any) -> None:
    """Refuse what is rare."""
    functions = tuple(map(_text, attrs.get("activations", ())))
    usual = _DEFAULTS[kind]
    if functions not in {(), usual, usual * 2}:
        raise NotImplementedError(f"its activations are {', '.join(functions)}")
    for name, value in (("sequence_lens", lengths), ("peepholes", peepholes)):
        if value is not None:
            raise NotImplementedError(f"it has {name}")
    for name in ("clip", "layout", "input_forget"):
        if attrs.get(name):
            raise NotImplementedError(f"it has the attribute {name}")


def _projected(emit: Emit, x: Any, weights: NDArray[Any], bias: NDArray[Any]) -> list[Any]:
    """The inputs' part of the gates of each step, (batch, gates)."""
    steps, batch, width = (int(extent) for extent in x.ty.shape)
    flat = emit(relax.op.reshape(x, [steps * batch, width]))
    made = emit(relax.op.matmul(flat, relax.const(np.ascontiguousarray(weights.T))))
    made = emit(relax.op.add(made, relax.const(bias)))
    if steps == 1:
        return [made]
    parts = emit(relax.op.split(made, steps, 0))
    return [emit(relax.TupleGetItem(parts, time)) for time in range(steps)]


def _lstm_step(
    emit: Emit, recurrent: NDArray[Any], bias: NDArray[Any], hidden: int, _attrs: Any
) -> Callable[[Any, list[Any]], list[Any]]:
    """Gates are input, output, forget and cell, as ONNX has them."""
    weights = relax.const(np.ascontiguousarray(recurrent.T))
    added = relax.const(bias[4 * hidden :])

    def step(inside: Any, state: list[Any]) -> list[Any]:
        held, cell = state
        sums = emit(relax.op.add(emit(relax.op.matmul(held, weights)), added))
        parts = emit(relax.op.split(emit(relax.op.add(inside, sums)), 4, 1))
        gate, out, forget, new = (emit(relax.TupleGetItem(parts, place)) for place in range(4))
        gate, out, forget = (emit(relax.op.sigmoid(one)) for one in (gate, out, forget))
        kept = emit(relax.op.multiply(forget, cell))
        cell = emit(relax.op.add(kept, emit(relax.op.multiply(gate, emit(relax.op.tanh(new))))))
        return [emit(relax.op.multiply(out, emit(relax.op.tanh(cell)))), cell]

    return step


def _gru_step(
    emit: Emit, recurrent: NDArray[Any], bias: NDArray[Any], hidden: int, attrs: Mapping[str, Any]
) -> Callable[[Any, list[Any]], list[Any]]:
    """Gates are update, reset and hidden; the reset comes before the product, or after it."""
    after = bool(attrs.get("linear_before_reset", 0))
    both, last = (
        relax.const(np.ascontiguousarray(part.T))
        for part in (recurrent[: 2 * hidden], recurrent[2 * hidden :])
    )
    both_bias, last_bias = (
        relax.const(part) for part in (bias[3 * hidden : 5 * hidden], bias[5 * hidden :])
    )

    def step(inside: Any, state: list[Any]) -> list[Any]:
        [held] = state
        given = emit(relax.op.split(inside, [2 * hidden], 1))
        gates_in, new_in = (emit(relax.TupleGetItem(given, place)) for place in range(2))
        sums = emit(relax.op.add(emit(relax.op.matmul(held, both)), both_bias))
        gates = emit(relax.op.sigmoid(emit(relax.op.add(gates_in, sums))))
        parts = emit(relax.op.split(gates, 2, 1))
        update, reset = (emit(relax.TupleGetItem(parts, place)) for place in range(2))
        source = held if after else emit(relax.op.multiply(reset, held))
        found = emit(relax.op.add(emit(relax.op.matmul(source, last)), last_bias))
        found = emit(relax.op.multiply(reset, found)) if after else found
        new = emit(relax.op.tanh(emit(relax.op.add(new_in, found))))
        change = emit(relax.op.multiply(update, emit(relax.op.subtract(held, new))))
        return [emit(relax.op.add(new, change))]

    return step


_STEPS: dict[str, Callable[..., Callable[[Any, list[Any]], list[Any]]]] = {
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}


def _start(emit: Emit, given: Any, place: int, shape: tuple[int, int], dtype: Any) -> Any:
    """A direction's first state; zeros where none is given."""
    if given is None:
        return relax.const(np.zeros(shape, dtype))
    part = emit(relax.op.strided_slice(given, [0], [place], [place + 1]))
    return emit(relax.op.reshape(part, list(shape)))


def _constant(value: Any) -> NDArray[Any]:
    if not isinstance(value, tvm.ir.GenericConst):
        raise NotImplementedError("weights or values of it are computed by the network")
    return array_of(value)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _power(emit: Emit, inputs: Sequence[Any], _attrs: Any) -> Any:
    """A power has the type of its base; the exponent's may be another."""
    base, exponent = inputs
    wanted, given = str(base.ty.dtype), str(exponent.ty.dtype)
    if isinstance(exponent, tvm.ir.GenericConst):
        exponent = relax.const(array_of(exponent).astype(wanted), wanted)
    elif given != wanted:
        exponent = emit(relax.op.astype(exponent, wanted))
    return emit(relax.op.power(base, exponent))


def _one_hot(emit: Emit, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Numbers have the type of the two values, which TVM's importer makes 64 bits wide."""
    indices, depth, values = inputs
    count, (off, on) = int(_constant(depth).reshape(())), _constant(values)
    kind = str(indices.ty.dtype)
    negative = emit(relax.op.less(indices, relax.const(0, kind)))
    counted = emit(relax.op.add(indices, relax.const(count, kind)))
    places = emit(relax.op.where(negative, counted, indices))
    given = (tvm.tirx.const(value.item(), str(value.dtype)) for value in (on, off))
    return emit(relax.op.one_hot(places, *given, count, int(attrs.get("axis", -1))))


CONVERTERS: dict[str, Callable[..., Any]] = {
    "LSTM": _recurrent("LSTM"),
    "GRU": _recurrent("GRU"),
    "OneHot": _one_hot,
    "Pow": _power,
}
"""What emits a node and returns its value, given its inputs and attributes, by kind of node."""


def imported(model: Any, shapes: Mapping[str, Sequence[int]]) -> ImportedGraph:
    """An ONNX model as Relax has it; its variables come from nodes.

    Args:
        model: an ``onnx.ModelProto``.
        shapes: of inputs that it leaves open, by name.

    Raises:
        ConfigError: a node cannot be read; names it.
    """
    given = {name: list(shape) for name, shape in shapes.items()}
    importer = _Importer(given or None, "float32")
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    # It prints what it is amid where something fails.
    with contextlib.redirect_stdout(io.StringIO()):
        module = importer.from_onnx(model.graph, opset)
    return ImportedGraph(
        module=module,
        locations=importer.locations_in(module),
        is_quantized=is_quantized(module),
        is_rounded=is_rounded(module),
    )


class _Importer(ONNXGraphImporter):
    """Remembers which node each variable is of."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._locations: dict[Any, SourceLocation] = {}

    def locations_in(self, module: Any) -> dict[str, SourceLocation]:
        """The node whose output each variable is, by the variable's name."""
        found = {}
        for block in module["main"].body.blocks:
            for binding in block.bindings:
                # What a node gives gets a variable where another one reads it.
                location = self._locations.get(binding.var) or self._locations.get(binding.value)
                if location is not None:
                    found[str(binding.var.name)] = location
        return found

    def _construct_nodes(self, graph: Any) -> None:
        super()._construct_nodes(graph)
        for node in graph.node:
            sentence = _sentence(node.name, node.op_type)
            location = SourceLocation(owner=_owner(node), sentence=sentence)
            for output in node.output:
                value = self._nodes.get(output)
                if isinstance(value, relax.Var | relax.Call):
                    self._locations.setdefault(value, location)

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        name = attrs.get("tvm_custom", {}).get("name", "")
        convert = CONVERTERS.get(op_name)
        try:
            if convert is not None:
                return convert(self.bb.emit, [self._folded(one) for one in inputs], attrs)
            return super()._convert_operator(op_name, inputs, attrs, opset)
        except Exception as error:
            raise ConfigError(
                f"{_sentence(name, op_name)} cannot be compiled: {first_line(error)}", hint=WAY_OUT
            ) from error

    def _folded(self, value: Any) -> Any:
        """An input as a constant where it follows from constants, as reordered weights do."""
        found = self._evaluated(value, {}) if isinstance(value, relax.Var | relax.Call) else None
        return value if found is None else relax.const(found, str(found.dtype))

    def _evaluated(self, value: Any, known: dict[Any, Any]) -> Any:
        """The value of a variable or a call, or None; those of variables are added to ``known``."""
        if isinstance(value, relax.Var):
            if value not in known:
                known[value] = self._evaluated(self.bb.lookup_binding(value), known)
            return known[value]
        if isinstance(value, tvm.ir.GenericConst):
            return array_of(value)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        for used in relax.analysis.free_vars(value):
            self._evaluated(used, known)
        found = evaluate(value, known)
        return None if found is None else found.astype(str(value.ty.dtype))

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        known = {*_get_convert_map(), *CONVERTERS, "If", "Constant"}
        lacking = [node for node in graph.node if node.op_type not in known]
        if lacking:
            named = (_sentence(node.name, node.op_type) for node in lacking)
            what = ", ".join(dict.fromkeys(named))
            foreign = any(node.domain == ONNXRUNTIME_DOMAIN for node in lacking)
            hint = _IN_THE_STANDARD if foreign else WAY_OUT
            raise ConfigError(f"the compiler has no operator for {what}", hint=hint)


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
