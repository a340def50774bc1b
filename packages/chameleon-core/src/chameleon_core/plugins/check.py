"""Says what is wrong with something a plugin registered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_core.plugins.kinds import Kind
from chameleon_core.plugins.records import (
    API_VERSION,
    CommandRecord,
    PluginRecord,
    PresetRecord,
)
from chameleon_core.words import with_article

Record = PluginRecord | PresetRecord | CommandRecord

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def complaint(kind: Kind, record: Any) -> str | None:
    """What is wrong with a record, to be read after "registers", or None.

    Args:
        kind: the kind whose hook returned it.
        record: anything.
    """
    if not isinstance(record, kind.record) or not isinstance(record, Record):
        given = with_article(type(record).__name__)
        return f"{given} as {kind.noun}, which must be a {kind.record.__name__}"
    name: Any = record.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return (
            f"{with_article(kind.noun)} named {name!r}; a name is made of letters, digits, "
            "'-', '_', '.' and '+'"
        )
    about = f"the {kind.noun} '{record.name}'"
    summary: Any = record.summary
    if not isinstance(summary, str):
        return f"{about} with a summary that is no text"
    if isinstance(record, PresetRecord):
        wrong = _wrong_preset(record.pipeline)
    else:
        wrong = _wrong_factory(record.factory)
        if wrong is None and isinstance(record, PluginRecord):
            wrong = (
                _wrong_version(record.api_version)
                or _wrong_operators(record.operators)
                or _wrong_options(kind, record.options)
            )
    return None if wrong is None else f"{about} with {wrong}"


def _wrong_factory(factory: Any) -> str | None:
    if isinstance(factory, str) and _FACTORY.fullmatch(factory):
        return None
    return f"the factory {factory!r}, which must be like 'module:Class'"


def _wrong_version(version: Any) -> str | None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return f"the API version {version!r}, which must be a positive integer"
    if version > API_VERSION:
        return (
            f"API version {version}, newer than this installation's {API_VERSION}: upgrade "
            "chameleon-tuner-core"
        )
    return None


def _wrong_operators(operators: Any) -> str | None:
    if isinstance(operators, tuple) and all(isinstance(one, str) for one in operators):
        return None
    return f"the operators {operators!r}, which must be a tuple of texts"


def _wrong_options(kind: Kind, options: Any) -> str | None:
    if not (isinstance(options, type) and attrs.has(options)):
        return f"the options {options!r}, which must be an attrs class"
    try:
        attrs.resolve_types(options)
    except Exception as error:  # noqa: BLE001 - annotations may name anything
        return f"options whose annotations cannot be resolved ({type(error).__name__}: {error})"
    # The section's own key `name` says which implementation is meant; a frontend has no such key.
    if kind.name != "frontends" and any(field.alias == "name" for field in attrs.fields(options)):
        return "an option called 'name', which the pipeline file uses for the stage itself"
    return None


def _wrong_preset(pipeline: Any) -> str | None:
    if not isinstance(pipeline, Mapping):
        return "a pipeline that is no mapping"
    if not all(isinstance(key, str) for key in pipeline):
        return "pipeline keys that are no text"
    if "preset" in pipeline:
        return "a preset of its own; presets do not nest"
    return None
