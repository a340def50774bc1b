"""Sources of variables of an imported network, in its user's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True, eq=False)
class ImportedGraph:
    """A network as Relax has it, with constant weights.

    Attributes:
        module: a Relax ``IRModule``.
        locations: the place that each variable of it comes from, by its name.
        is_quantized: whether it comes with steps of quantization in it.
        is_rounded: whether it rounds what it computes, not its weights alone.
        operators: how often each operator of its framework occurs.
    """

    module: Any
    locations: Mapping[str, SourceLocation]
    is_quantized: bool
    is_rounded: bool
    operators: Mapping[str, int]


@attrs.frozen(kw_only=True)
class SourceLocation:
    """The place of an operator in a network.

    Attributes:
        owner: the torch module (``layer4.0.conv1``) or the ONNX node that it is of; empty if
            that has no name.
        sentence: the operator, its owner, and for torch the line that calls it.
        output: the name of the result in the framework's graph; empty if it has none there.
    """

    owner: str
    sentence: str
    output: str = ""
