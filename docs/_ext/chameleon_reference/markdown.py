"""Pieces of Markdown, and what a JSON Schema says in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chameleon_cli._json_schema.types import DURATION

_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "string",
    "boolean": "true or false",
    "null": "null",
    "object": "mapping",
    "array": "list",
}


def cell(text: str) -> str:
    """A text that stays within a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def code(value: Any) -> str:
    """A value as a pipeline has it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else "`''`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """A headline and what is below it."""
    below = [f"{part.strip()}\n" for part in parts if part]
    return "\n".join([f"{'#' * level} {title}", "", *below])


def options_table(schema: Mapping[str, Any]) -> str:
    """The options of a section: name, type, default and help.

    Args:
        schema: of a mapping.
    """
    rows = list(_rows(schema, ""))
    return table(["option", "type", "default", "meaning"], rows) if rows else "No options.\n"


def _rows(schema: Mapping[str, Any], prefix: str) -> Iterable[Sequence[str]]:
    """A row for each option; those of an option that is a section itself come below it."""
    required = schema.get("required", [])
    for name, about in schema.get("properties", {}).items():
        default = "required" if name in required else ""
        if "default" in about:
            default = cell(code(about["default"]))
        yield (
            f"`{prefix}{name}`",
            in_words(about),
            default,
            cell(about.get("description", "")),
        )
        for inner in (about, *about.get("anyOf", ())):
            yield from _rows(inner, f"{prefix}{name}.")


def in_words(schema: Mapping[str, Any]) -> str:
    """What a value may be, such as ``integer, at least 1, or null``."""
    members = list(dict.fromkeys(_members(schema)))
    # Null comes last.
    members.sort(key=lambda member: member == "null")
    return cell(" or ".join(members)) if members else "any"


def _members(schema: Mapping[str, Any]) -> Iterable[str]:
    bounds = _bounds(schema)
    if "enum" in schema:
        yield from ("null" if entry is None else code(entry) for entry in schema["enum"])
    elif "const" in schema:
        yield code(schema["const"])
    elif "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2].removesuffix("s").replace("_", " ")
    elif "anyOf" in schema:
        for entry in schema["anyOf"]:
            yield from _members({**entry, **_numeric(schema)})
    elif schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        inner = in_words(schema["items"])
        yield f"list of: {inner}" if inner != "any" else "list"
    elif schema.get("pattern"):
        yield "duration such as `20m`" if schema["pattern"] == DURATION else "text"
    else:
        names = schema.get("type", [])
        for name in [names] if isinstance(names, str) else names:
            yield _TYPES[name] + (bounds if name in ("integer", "number") else "")


def _numeric(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if "imum" in key}


def _bounds(schema: Mapping[str, Any]) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    parts = [f"{word} {schema[key]}" for key, word in words.items() if key in schema]
    return f" ({', '.join(parts)})" if parts else ""
