"""The place in a user's network that a node of an exported program comes from."""

from __future__ import annotations

from typing import Any

from chameleon_networks.source_location import SourceLocation


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
