"""Operators of a graph that nothing converts, all of them at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import onnx
from chameleon_core.errors import ConfigError
from chameleon_tvm.words import WAY_OUT
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

from chameleon_networks.importers.onnx.control import SPECIAL
from chameleon_networks.importers.onnx.converters import CONVERTERS
from chameleon_networks.importers.onnx.nodes import VALUES, sentence_of
from chameleon_networks.importers.onnx.quantized import ONNXRUNTIME_DOMAIN
from chameleon_networks.importers.onnx.standard import STANDARD

DOMAINS = STANDARD | {ONNXRUNTIME_DOMAIN, "ai.onnx.ml", "ai.onnx.preview.training"}
"""Domains whose operators converters are named after."""

_IN_THE_STANDARD = (
    "It is none of the standard's, but onnxruntime's own: save the network before onnxruntime "
    "fuses it, and quantize it in the QDQ format (quant_format=QuantFormat.QDQ)."
)


def check_operators(graph: Any) -> None:
    """Refuse a graph with all of its operators that nothing converts, and how often each occurs.

    Raises:
        ConfigError: there are some.
    """
    nodes = defaultdict(list)
    for node in _lacking(graph):
        nodes[node.domain, node.op_type].append(node)
    if nodes:
        listed = (
            sentence_of(first) + (f" (and {len(others)} more of them)" if others else "")
            for first, *others in nodes.values()
        )
        foreign = any(domain == ONNXRUNTIME_DOMAIN for domain, _ in nodes)
        hint = _IN_THE_STANDARD if foreign else WAY_OUT
        raise ConfigError(f"the compiler has no operator for {', '.join(listed)}", hint=hint)


def _lacking(graph: Any) -> Iterator[Any]:
    # What reads nothing but values that have to be known is computed by ONNX's reference.
    known = {*_get_convert_map(), *CONVERTERS, *SPECIAL, *VALUES}
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _lacking(inner)
        if node.op_type in known and node.domain in DOMAINS:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, node.domain)
        except onnx.defs.SchemaError:
            schema = None
        if schema is None or not (schema.has_function or schema.has_context_dependent_function):
            yield node
