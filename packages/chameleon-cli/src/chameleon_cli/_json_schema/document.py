"""The schema of a whole pipeline file (JSON Schema, draft 2020-12).

The schema describes what a file can be checked for on its own: keys, types, choices, and bounds of
numbers. ``chameleon validate`` also checks the rest, such as unique names, files that must exist,
and options that exclude each other. It refuses every file that the schema refuses.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from chameleon_core.api import Registration, Registry, ResolvedPipeline, words
from chameleon_core.plugin_api import PluginError

from chameleon_cli._json_schema.types import NOTHING, Schema, TypeSchemas

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VALUE: Schema = {"not": {"type": ["null", "object"]}}
_FIXED: Schema = {
    "type": "object",
    "additionalProperties": {"anyOf": [_VALUE, {"type": "object", "additionalProperties": _VALUE}]},
}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}


def pipeline_schema(registry: Registry | None = None) -> Schema:
    """Make the JSON Schema of pipeline files, with the options of all plugins.

    Args:
        registry: the registry of plugins whose stages and options the schema describes; if None,
            the registry of installed plugins.
    """
    return _Document(registry if registry is not None else Registry.default()).schema()


class _Document:
    """Makes the schema of a whole pipeline file.

    Args:
        registry: the registry of plugins.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._stages = StageSchemas(registry)
        self._presets = registry.entries("presets")

    def schema(self) -> Schema:
        """The whole schema."""
        types, fields = self._stages.types, attrs.fields(attrs.resolve_types(ResolvedPipeline))
        sections: dict[str, Schema] = {
            "preset": self._preset(),
            "model": self._model(),
            "target": self._target(),
            **{
                name: {
                    "description": section.summary,
                    **types.opened(section.options, types.section(section.options)),
                }
                for name, section in self._registry.sections.items()
            },
            **{key: self._stage(key, kind) for key, kind in self._registry.stages.items()},
            "warm_start": {
                "description": "folders of earlier runs, whose best is measured first",
                **_one_or_more({"type": "string"}, null=True),
            },
            "fix": {
                "description": "knobs that hold one value: values by knob, or a mapping of such "
                "below the name of the only operator that is meant",
                "anyOf": [_FIXED, {"type": "null"}],
            },
            "records": {
                "description": "databases of earlier measurements: a place, none, default, or a "
                "mapping with a name",
                **_one_or_more({"anyOf": [{"type": "string"}, *self._databases()]}, null=True),
            },
            "baselines": {
                "description": "what the winners are compared with",
                **_one_or_more(self._stages.of("baselines")),
            },
            "budget": {**types.of(fields.budget.type), "description": "how much a run may spend"},
            "require": {
                "description": "a result that must be reached; exit code 5 if it is not",
                **types.of(fields.require.type),
            },
            "seed": {
                "description": "of every random choice",
                "type": "integer",
                "minimum": 0,
                "default": 0,
            },
            "output": {"description": "the run folder; runs/ and the file's name", **_TEXT},
        }
        return {
            "$schema": DIALECT,
            "title": "Chameleon pipeline",
            "description": "A model to tune, how, for which machine, and how much may be spent.",
            "type": "object",
            "properties": {key: sections[key] for key in self._registry.pipeline_keys},
            "required": self._required(),
            "additionalProperties": False,
            "$defs": self._stages.definitions,
        }

    def _required(self) -> list[str]:
        """The keys that a pipeline needs and that no preset has."""
        preset_keys = {key for preset in self._presets for key in preset.record.pipeline}
        return [
            key for key in ("model", "target", *self._registry.stages) if key not in preset_keys
        ]

    def _preset(self) -> Schema:
        names = [self._stages.named(entry) for entry in self._presets]
        return {"description": "stages under one name", "anyOf": names or [NOTHING]}

    def _model(self) -> Schema:
        """The schema of a mapping whose only key is a frontend."""
        named: dict[str, Schema] = {}
        in_full: dict[str, Schema] = {}
        for entry in self._registry.entries("frontends"):
            schema = self._stages.opened(entry)
            if self._registry.full_name(entry) == entry.name:
                named[entry.name] = schema
            in_full[self._stages.full(entry)] = schema
        return {
            "description": "what to tune: one key, the frontend",
            "type": "object",
            "properties": named,
            "patternProperties": in_full,
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }

    def _target(self) -> Schema:
        resolvers = [self._stages.named(entry) for entry in self._registry.entries("targets")]
        resolver = {"description": "which plugin reads it", "anyOf": resolvers or [NOTHING]}
        # A target as a mapping is in TVM's form; only the resolver knows its other keys.
        described: Schema = {
            "type": "object",
            "properties": {"kind": _TEXT},
            "required": ["kind"],
            "not": {"anyOf": [{"required": [key]} for key in ("text", "resolver")]},
        }
        in_full: Schema = {
            "type": "object",
            "properties": {"text": {"anyOf": [_TEXT, described]}, "resolver": resolver},
            "required": ["text"],
            "additionalProperties": False,
        }
        return {
            "description": "for which machine: native, or anything TVM takes",
            "anyOf": [_TEXT, described, in_full],
        }

    def _databases(self) -> list[Schema]:
        kind = "record_databases"
        entries = self._registry.entries(kind)
        return [self._stages.mapping(entry, required=True) for entry in entries]

    def _stage(self, key: str, kind: str) -> Schema:
        """The schema of a stage. A mapping without a name changes options of the preset's stage."""
        entries = {entry.record.factory: entry for entry in self._of_presets(key, kind)}
        nameless = [self._stages.mapping(entry, required=False) for entry in entries.values()]
        return {
            "description": f"the {self._registry.kinds[kind].noun}",
            "anyOf": [self._stages.of(kind), *nameless],
            **self._default(key),
        }

    def _of_presets(self, key: str, kind: str) -> Iterator[Registration]:
        """The stages that presets have for a key, if they are installed."""
        for preset in self._presets:
            name = _name_of(preset.record.pipeline.get(key))
            if name is not None:
                with contextlib.suppress(PluginError):
                    yield self._registry.find(kind, name, author=preset.distribution)

    def _default(self, key: str) -> Schema:
        """The default of a key, for a pipeline that does not set the key."""
        preset = self._registry.default_preset
        name = None if preset is None else _name_of(preset.pipeline.get(key))
        return {} if name is None else {"default": name}


def _name_of(stage: Any) -> str | None:
    """The name of a stage in a preset."""
    name = stage.get("name") if isinstance(stage, Mapping) else stage
    return name if isinstance(name, str) else None


def _one_or_more(schema: Schema, *, null: bool = False) -> Schema:
    """The schema of a value, or of a list of such values."""
    members = [schema, {"type": "array", "items": schema}, *([{"type": "null"}] if null else [])]
    return {"anyOf": members}


_ESCAPED = r"\\\g<0>"
_BETWEEN = re.compile(r"[-_.]+")
_SPECIAL = re.compile(r"[\\^$.|?*+(){}\[\]/]")


class StageSchemas:
    """Makes the JSON Schemas of all installed stages.

    Each schema is written once in the document, and other parts of the document refer to it.

    Args:
        registry: the registry of plugins.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        precisions = {
            name for entry in registry.entries("frontends") for name in entry.record.precisions
        }
        self.types = TypeSchemas(registry.classes, self.of, sorted({"float32", *precisions}))
        self.definitions: dict[str, Schema] = {}
        self._required: dict[str, list[str]] = {}

    def of(self, kind: str, alone: bool = False) -> Schema:
        """The schema of a stage of a kind.

        Args:
            kind: a key of ``registry.kinds``.
            alone: whether only a name is allowed, without options. Options with ``names`` in their
                metadata are such a case.
        """
        noun = words.with_article(self._registry.kinds[kind].noun)
        names = {
            "description": f"{noun} by name",
            "anyOf": [self.named(entry) for entry in self._registry.entries(kind)] or [NOTHING],
        }
        if alone:
            return names
        if kind not in self.definitions:
            self.definitions[kind] = {}  # stages of this kind may have options of the same kind
            entries = self._registry.entries(kind)
            mappings = [self.mapping(entry, required=True) for entry in entries]
            self.definitions[kind] = {
                "description": f"{noun}: its name, or a mapping with its name and its options",
                "anyOf": [names, *mappings],
            }
        return _reference(kind)

    def named(self, entry: Registration) -> Schema:
        """The schema of a string that names a registered plugin.

        Args:
            entry: the registered plugin.
        """
        # A name that several distributions have is allowed, because in a preset it names one of
        # them.
        texts = [{"const": entry.name}, {"type": "string", "pattern": self.full(entry)}]
        return {"description": entry.record.summary, "anyOf": texts}

    def full(self, entry: Registration) -> str:
        """The regular expression of ``distribution:name`` for a registered plugin.

        It accepts all spellings of the distribution (PEP 503).

        Args:
            entry: the registered plugin.
        """
        words = _BETWEEN.split(entry.distribution)
        spelt = "[-_.]+".join("".join(map(_either_case, word)) for word in words)
        return f"^{spelt}:{_SPECIAL.sub(_ESCAPED, entry.name)}$"

    def mapping(self, entry: Registration, *, required: bool) -> Schema:
        """The schema of a mapping with the options of a registered plugin.

        Args:
            entry: the registered plugin.
            required: whether the mapping must have ``name`` and all options without default. If
                False, a preset may supply them.
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
        """The schema of a plugin's options, as the value of a key that is the plugin's name.

        A frontend is written so, as in ``model: {onnx: ...}``.

        Args:
            entry: the registered plugin.
        """
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
