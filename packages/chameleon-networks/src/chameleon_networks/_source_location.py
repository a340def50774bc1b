"""The place in a user's model (a module or node) that each operator of a network comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import attrs

_LONGEST = 120
"""Number of characters of a line of code that a message quotes."""


@attrs.frozen(kw_only=True, eq=False)
class ImportedGraph:
    """A network in Relax, TVM's graph language, with its weights as constants.

    Attributes:
        module: A Relax ``IRModule``.
        locations: The place in the user's model that each Relax variable comes from, by the
            variable's name.
        is_quantized: Whether the model that was imported contains quantization steps.
        is_rounded: Whether the network rounds computed values to quantized numbers, not its weights
            alone.
        operators: How often each operator of the framework occurs in the model, by its name.
    """

    module: Any
    locations: Mapping[str, SourceLocation]
    is_quantized: bool
    is_rounded: bool
    operators: Mapping[str, int]


@attrs.frozen(kw_only=True)
class SourceLocation:
    """The place of an operator in a user's model.

    Attributes:
        owner: The name of the torch module (such as ``layer4.0.conv1``) or of the ONNX node that
            contains the operator. Empty if the module or node has no name.
        sentence: A description for messages: the operator, its owner, and for torch the line of
            code that calls the operator.
        output: The name of the operator's result in the framework's graph. Empty if the result has
            no name there.
    """

    owner: str
    sentence: str
    output: str = ""


def location_of(node: Any) -> SourceLocation:
    """The torch module of a node of an exported program, and the line that calls it."""
    modules = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    owner = modules[-1] if modules else ""
    inside = f" in module {owner}" if owner else ""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    file = next((line.strip() for line in reversed(lines) if line.strip().startswith("File")), "")
    # Torch may generate lines of code with thousands of characters.
    code = textwrap.shorten(lines[-1], _LONGEST, placeholder=" ...") if file else ""
    where = f" ({_spot(file)}: `{code}`)" if file else ""
    sentence = f"operator {operator_of(node)}{inside}{where}"
    return SourceLocation(owner=owner, sentence=sentence, output=node.name)


def operator_of(node: Any) -> str:
    """The name of the operator that a program's node calls."""
    # An operator with an effect, such as raising an error, is called through ``with_effects``,
    # which orders effects.
    effect = getattr(node.target, "__name__", "") == "with_effects"
    target = node.args[1] if effect else node.target
    return str(getattr(target, "__name__", target)).removesuffix(".default")


def _spot(frame: str) -> str:
    """``File "/a/net.py", line 3, in forward`` as ``net.py:3``."""
    file, _, rest = frame.removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"
