"""TVM's importer of ONNX graphs, with the node of what it refuses."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_tvm.words import WAY_OUT, first_line
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from chameleon_networks.graph.constants import array_of, evaluate
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.importers.onnx.lowering import CONVERTERS
from chameleon_networks.importers.onnx.quantized import ONNXRUNTIME_DOMAIN
from chameleon_networks.source_location import SourceLocation


def imported(
    model: Any, shapes: Mapping[str, Sequence[int]]
) -> tuple[Any, dict[str, SourceLocation]]:
    """An ONNX model as a Relax module with constant weights.

    Args:
        model: an ``onnx.ModelProto``.
        shapes: of inputs that it leaves open, by name.

    Returns:
        The module, and for the name of each variable in it the node that it is of.

    Raises:
        ConfigError: a node cannot be read; names it.
    """
    given = {name: list(shape) for name, shape in shapes.items()}
    importer = _Importer(given or None, "float32")
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    # It prints what it is amid where something fails.
    with contextlib.redirect_stdout(io.StringIO()):
        module = importer.from_onnx(model.graph, opset)
    return module, importer.locations_in(module)


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
