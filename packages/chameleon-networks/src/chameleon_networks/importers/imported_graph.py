"""What TVM's importers make of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_networks.source_location import SourceLocation


@attrs.frozen(kw_only=True, eq=False)
class ImportedGraph:
    """A network as Relax has it, with constant weights.

    Attributes:
        module: a Relax ``IRModule``.
        locations: the place that each variable of it comes from, by its name.
        is_quantized: whether it comes with steps of quantization in it.
        is_rounded: whether it rounds what it computes, not its weights alone.
    """

    module: Any
    locations: Mapping[str, SourceLocation]
    is_quantized: bool
    is_rounded: bool
