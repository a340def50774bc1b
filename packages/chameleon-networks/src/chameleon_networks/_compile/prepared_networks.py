"""Prepares imported networks for tuning and compilation, and keeps the result for each layout."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from chameleon_networks._graph.fusion import chains_of
from chameleon_networks._graph.fusion_groups import FusedOperator
from chameleon_networks._graph.prepare import prepared
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.imported_network import ImportedNetwork

Prepared = tuple[Any, list[FusedOperator]]
"""A Relax module, and its fused operators."""

_KNOWN: WeakKeyDictionary[ImportedNetwork, dict[str, Prepared]] = WeakKeyDictionary()


def prepared_network(network: ImportedNetwork, layout: str | None = None) -> Prepared:
    """Prepare a network in a layout, and find its fused operators.

    Args:
        network: The imported network.
        layout: The layout, ``NHWC`` or ``NCHW``. None means the layout that the run chose for the
            network.

    Returns:
        A Relax ``IRModule``, and its fused operators.

    Raises:
        ConfigError: The network cannot be read or converted to the layout.
    """
    known = _KNOWN.setdefault(network, {})
    layout = layout or network.layout
    if layout not in known:
        imported = network.imported
        with warnings_once():
            module = prepared(imported, layout)
            known[layout] = module, chains_of(module)
    return known[layout]
