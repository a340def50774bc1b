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


def location_of(node: Any) -> SourceLocation:
    """The module of a program's node, and the line that calls it.

    Args:
        node: a node of a ``torch.export.ExportedProgram``.
    """
    modules = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    owner = modules[-1] if modules else ""
    inside = f" in module {owner}" if owner else ""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    file = next((line.strip() for line in reversed(lines) if line.strip().startswith("File")), "")
    where = f" ({_spot(file)}: `{lines[-1].strip()}`)" if file else ""
    sentence = f"operator {operator_of(node)}{inside}{where}"
    return SourceLocation(owner=owner, sentence=sentence, output=node.name)


def operator_of(node: Any) -> str:
    """The name of the operator that a program's node calls."""
    # What has an effect, such as an error, is called by an operator that orders effects.
    effect = getattr(node.target, "__name__", "") == "with_effects"
    target = node.args[1] if effect else node.target
    return str(getattr(target, "__name__", target)).removesuffix(".default")


def _spot(frame: str) -> str:
    """``File "/a/net.py", line 3, in forward`` as ``net.py:3``."""
    file, _, rest = frame.removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"
