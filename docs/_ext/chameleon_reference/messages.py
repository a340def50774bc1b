"""The page of error messages: every sentence that comes with a hint, read from the source."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import attrs
from chameleon_core._plugins.first_party import FIRST_PARTY

from chameleon_reference.markdown import cell, section, table

_ANYTHING = "…"
"""Stands for what a message fills in."""


@attrs.frozen(kw_only=True)
class Message:
    """One error that says what to do.

    Attributes:
        package: whose code raises it.
        error: the name of its class.
        text: what it says, with an ellipsis for each name or number.
        hint: what it says to do, likewise.
    """

    package: str
    error: str
    text: str
    hint: str


def messages() -> Iterator[Message]:
    """All of them, by package and file."""
    for distribution in sorted(FIRST_PARTY):
        package = distribution.replace("chameleon-tuner-", "chameleon_").replace("-", "_")
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in sorted(Path(folder).rglob("*.py")):
                yield from _of_file(package, ast.parse(file.read_text(encoding="utf-8")))


def messages_page() -> str:
    """A table for each package."""
    about = (
        "The error messages of Chameleon that have a hint, with their hints. "
        f"{_ANYTHING} stands for a name, a number or another part that varies."
    )
    usual = "[Troubleshooting](../troubleshooting.md) explains the most frequent messages."
    by_package: dict[str, list[Message]] = {}
    for message in messages():
        by_package.setdefault(message.package, []).append(message)
    parts = [section("Error messages", about, usual, level=1)]
    for package, group in by_package.items():
        rows = sorted({(cell(message.text), cell(message.hint)) for message in group})
        parts.append(section(f"`{package}`", table(["message", "hint"], rows)))
    return "\n".join(parts)


def _of_file(package: str, tree: ast.Module) -> Iterator[Message]:
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        error = getattr(node.func, "id", getattr(node.func, "attr", ""))
        hint = next((word.value for word in node.keywords if word.arg == "hint"), None)
        if not error.endswith("Error") or hint is None:
            continue
        for text in _texts(node.args[0], constants):
            advice = next(iter(_texts(hint, constants)))
            # A message that is all filled in says nothing here.
            if text.strip(_ANYTHING + " ") and advice.strip(_ANYTHING + " "):
                yield Message(package=package, error=error, text=text, hint=advice)


def _texts(node: ast.expr, constants: dict[str, ast.expr]) -> list[str]:
    """What an expression may say: one text, or one for each branch of a condition."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = [sub.value if isinstance(sub, ast.Constant) else _ANYTHING for sub in node.values]
        return ["".join(map(str, parts))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _texts(node.left, constants), _texts(node.right, constants)
        return [f"{start}{other}" for start in left for other in right]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, constants), *_texts(node.orelse, constants)]
    if isinstance(node, ast.Name) and node.id in constants:
        return _texts(constants[node.id], {})
    return [_ANYTHING]
