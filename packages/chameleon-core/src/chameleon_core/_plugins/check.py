"""Checks of the records that plugins register."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from chameleon_core._plugins import records
from chameleon_core._plugins.kinds import Kind
from chameleon_core._words import with_article

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def complaint(kind: Kind, record: Any) -> str | None:
    """The reason why a plugin's record is invalid, for a message that begins with "registers".

    None means that the record is valid.

    Args:
        kind: the kind of plugin whose hook returned the record.
        record: the object that the hook returned, which may be of any type.
    """
    if not isinstance(record, kind.record) and not _is_plain(kind, record):
        kind_given = with_article(type(record).__name__)
        wanted = with_article(kind.record.__name__)
        return f"{kind_given} as {kind.noun}, which must be {wanted}"
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
    wrong = next((wrong for wrong in _problems(kind, record) if wrong is not None), None)
    return None if wrong is None else f"{about} with {wrong}"


def of_kind(kind: Kind, record: Any) -> Any:
    """A valid record, with default values of the fields that only records of its kind have."""
    if isinstance(record, kind.record):
        return record
    return kind.record(**attrs.asdict(record, recurse=False))


def _is_plain(kind: Kind, record: Any) -> bool:
    """Whether a record of a stage lacks the fields of its kind."""
    return type(record) is records.PluginRecord and issubclass(kind.record, records.PluginRecord)


def _problems(kind: Kind, record: Any) -> Iterator[str | None]:
    """The result of each check of a record: a fault, or None."""
    if isinstance(record, Kind):
        return
    for field, (fits, form) in _FORMS.items():
        value = getattr(record, field, None)
        if hasattr(record, field) and not fits(value):
            yield f"the {field} {value!r}, which must be {form}"
    if hasattr(record, "api_version"):
        yield _wrong_version(record.api_version)
    if isinstance(record, records.PresetRecord):
        yield _wrong_preset(record.pipeline)
    if isinstance(record, records.OperatorRecord):
        yield _wrong_arguments(record.name, record.arguments)
    if isinstance(record, records.TemplateRecord) and not (record.operators and record.targets):
        empty = "targets" if record.operators else "operators"
        yield f"no {empty}, of which it must name one at least"
    if isinstance(record, records.PluginRecord | records.SectionRecord):
        options: Any = record.options
        yield _wrong_options(kind, options)
        if isinstance(record, records.SectionRecord) and not issubclass(options, records.Section):
            yield f"the options {options!r}, which must be a Section"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(values: Any) -> bool:
    return isinstance(values, tuple) and all(map(_is_text, values))


_FORMS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "factory": (lambda text: _is_text(text) and _FACTORY.fullmatch(text), "like 'module:Class'"),
    "architecture": (_is_text, "a text"),
    **dict.fromkeys(("features", "operators", "targets"), (_are_texts, "a tuple of texts")),
}
"""Checks of fields that records of several kinds have, with the form that a field must have."""


def _wrong_version(version: Any) -> str | None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return f"the API version {version!r}, which must be a positive integer"
    if version > records.API_VERSION:
        return (
            f"API version {version}, newer than this installation's {records.API_VERSION}: upgrade "
            "chameleon-tuner-core"
        )
    return None


def _wrong_arguments(name: str, arguments: Any) -> str | None:
    if arguments is None:
        return None
    if (wrong := _wrong_class("arguments", arguments)) is not None:
        return wrong
    kind = getattr(arguments, "kind", None)
    if kind != name:
        return f"the arguments {arguments!r}, whose 'kind' must be '{name}' too, not {kind!r}"
    if not callable(getattr(arguments, "task", None)):
        return f"the arguments {arguments!r}, which must have a method 'task(name, target)'"
    return None


def _wrong_options(kind: Kind, options: Any) -> str | None:
    if (wrong := _wrong_class("options", options)) is not None:
        return wrong
    # In a pipeline, the key `name` of a stage names the plugin; a frontend has no such key.
    if kind.name != "frontends" and any(field.alias == "name" for field in attrs.fields(options)):
        return "an option called 'name', which the pipeline file uses for the stage itself"
    return None


def _wrong_class(what: str, value: Any) -> str | None:
    if not (isinstance(value, type) and attrs.has(value)):
        return f"the {what} {value!r}, which must be an attrs class"
    try:
        attrs.resolve_types(value)
    except Exception as error:  # noqa: BLE001 - annotations may name anything
        return f"{what} whose annotations cannot be resolved ({type(error).__name__}: {error})"
    return None


def _wrong_preset(pipeline: Any) -> str | None:
    if not isinstance(pipeline, Mapping):
        return "a pipeline that is no mapping"
    if not all(isinstance(key, str) for key in pipeline):
        return "pipeline keys that are no text"
    if "preset" in pipeline:
        return "a preset of its own; presets do not nest"
    return None
