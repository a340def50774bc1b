"""Schemas of stages: a name, or a mapping with a name and that plugin's options."""

from __future__ import annotations

import re

from chameleon_core.json_schema.bounds import NOTHING, Schema
from chameleon_core.json_schema.types import TypeSchemas
from chameleon_core.plugins.kinds import KINDS
from chameleon_core.plugins.manager import Registration
from chameleon_core.plugins.registry import Registry
from chameleon_core.words import with_article

_ESCAPED = r"\\\g<0>"
_BETWEEN = re.compile(r"[-_.]+")
_SPECIAL = re.compile(r"[\\^$.|?*+(){}\[\]/]")


class StageSchemas:
    """The schemas of what is installed; each is written once and referred to.

    Args:
        registry: the plugins.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.types = TypeSchemas(registry.classes, self.of)
        self.definitions: dict[str, Schema] = {}
        self._required: dict[str, list[str]] = {}

    def of(self, kind: str, alone: bool = False) -> Schema:
        """A stage of a kind.

        Args:
            kind: a key of ``KINDS``.
            alone: whether a name has to do, as for ``names`` in an option's metadata.
        """
        names = {
            "description": f"{with_article(KINDS[kind].noun)} by name",
            "anyOf": [self.named(entry) for entry in self._registry.entries(kind)] or [NOTHING],
        }
        if alone:
            return names
        if kind not in self.definitions:
            self.definitions[kind] = {}  # a stage among the options of one of its kind refers to it
            entries = self._registry.entries(kind)
            mappings = [self.mapping(entry, required=True) for entry in entries]
            self.definitions[kind] = {
                "description": f"{with_article(KINDS[kind].noun)}: its name, or a mapping with its "
                "name and its options",
                "anyOf": [names, *mappings],
            }
        return _reference(kind)

    def named(self, entry: Registration) -> Schema:
        """What a pipeline may call an entry."""
        # A name of several distributions is not refused: where a preset wrote it, it means one.
        texts = [{"const": entry.name}, {"type": "string", "pattern": self.full(entry)}]
        return {"description": entry.record.summary, "anyOf": texts}

    def full(self, entry: Registration) -> str:
        """The pattern of ``distribution:name``; a distribution is spelt in many ways (PEP 503)."""
        words = _BETWEEN.split(entry.distribution)
        spelt = "[-_.]+".join("".join(map(_either_case, word)) for word in words)
        return f"^{spelt}:{_SPECIAL.sub(_ESCAPED, entry.name)}$"

    def mapping(self, entry: Registration, *, required: bool) -> Schema:
        """A mapping with options of an entry.

        Args:
            entry: what is installed.
            required: whether its name and the options without defaults have to be there; where
                not, a preset may give them.
        """
        key = f"{entry.kind}.{self._registry.full_name(entry)}"
        if key not in self.definitions:
            section = self.types.section(entry.record.options)
            self._required[key] = section.pop("required", [])
            options = {"name": self.named(entry), **section["properties"]}
            about = {"description": entry.record.summary, "properties": options}
            self.definitions[key] = {**section, **about}
        reference = _reference(key)
        return {**reference, "required": ["name", *self._required[key]]} if required else reference

    def opened(self, entry: Registration) -> Schema:
        """What stands below the name of an entry that is a key itself, as a frontend's."""
        key = f"{entry.kind}.{self._registry.full_name(entry)}"
        if key not in self.definitions:
            options = entry.record.options
            opened = self.types.opened(options, self.types.section(options))
            self.definitions[key] = {"description": entry.record.summary, **opened}
        return _reference(key)


def _either_case(letter: str) -> str:
    return f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else letter


def _reference(key: str) -> Schema:
    return {"$ref": "#/$defs/" + key.replace("~", "~0").replace("/", "~1")}


__all__ = ["StageSchemas"]
