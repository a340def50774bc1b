"""Prepares imported networks for tuning and compilation, and keeps the result for each layout."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from chameleon_networks._graph.cancellations import with_cancellations
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.imported_network import ImportedNetwork

Prepared = tuple[Any, list[FusionGroup]]
"""A Relax module, and its fusion groups."""

_CACHE: WeakKeyDictionary[ImportedNetwork, dict[str, Prepared]] = WeakKeyDictionary()


def prepared_network(network: ImportedNetwork, layout: str | None = None) -> Prepared:
    """Prepare a network in a layout, and find its fusion groups, once for each layout."""
    known = _CACHE.setdefault(network, {})
    layout = layout or network.layout
    if layout not in known:
        imported = network.imported
        with warnings_once():
            module = prepare_module(imported, layout)
            known[layout] = module, find_fusions(module)
    module, fusions = known[layout]
    return module, with_cancellations(fusions, network.cancellations)
