"""The parts of a pipeline that a run folder's records depend on; they bind the folder to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from chameleon_core.pipeline.resolve import STAGES
from chameleon_core.pipeline.schema import ResolvedPipeline, StageSpec
from chameleon_core.plugins.options import BINDS, former_names, renamed
from chameleon_core.plugins.records import SectionRecord

_FREE = frozenset({"output", "budget", "require", "preset", "baselines", "records"})
"""Keys of a pipeline that no measurement depends on: how long it may search, where it writes, what
the winners are compared with, and where else there are records, which a run copies as it begins."""

_NAMED = 4
"""Differences that a sentence names."""


def difference(old: Mapping[str, Any], pipeline: ResolvedPipeline) -> str | None:
    """How a pipeline differs, in what records depend on, from one that was written down.

    A deadline, the place of a tracker or the number of attempts decide whether there is a
    measurement, not what it says.

    Args:
        old: ``ResolvedPipeline.document`` of the other one.
        pipeline: the pipeline.

    Returns:
        As ``seed was 0 and is 1``, or None if there is no difference.
    """
    free = _free_options(pipeline)
    sections = pipeline.known_sections
    before, now = (
        dict(flat(_bound(_in_current_names(document, pipeline), free, sections)))
        for document in (old, pipeline.document)
    )
    names = {f"{key}.name" for key in STAGES}
    lines = [
        f"{name} was {before.get(name, 'not set')} and is {now.get(name, 'not set')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
        and not (name in names and _same_stage(before.get(name), now.get(name)))
    ]
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return "; ".join(lines[:_NAMED]) + more or None


def _free_options(pipeline: ResolvedPipeline) -> dict[str, frozenset[str]]:
    """The names of the options that bind nothing, by key of the pipeline."""
    specs: dict[str, StageSpec] = {key: getattr(pipeline, key) for key in ("model", *STAGES)}
    return {
        key: frozenset(
            field.alias
            for field in attrs.fields(spec.record.options)
            if not field.metadata.get(BINDS, True)
        )
        for key, spec in specs.items()
    }


def _in_current_names(document: Mapping[str, Any], pipeline: ResolvedPipeline) -> dict[str, Any]:
    """A document in which options have the names that they have today."""
    specs: dict[str, StageSpec] = {key: getattr(pipeline, key) for key in STAGES}
    stages = {
        key: renamed(document[key], former_names(spec.record.options))
        for key, spec in specs.items()
        if isinstance(document.get(key), Mapping)
    }
    former = former_names(pipeline.model.record.options)
    model = {
        name: renamed(section, former) if isinstance(section, Mapping) else section
        for name, section in document.get("model", {}).items()
    }
    return {**document, **stages, "model": model}


def _bound(
    document: Mapping[str, Any],
    free: Mapping[str, frozenset[str]],
    sections: Mapping[str, SectionRecord],
) -> dict[str, Any]:
    bound = {
        key: _without(section, free.get(key, frozenset()), nested=key == "model")
        for key, section in document.items()
        if key not in _FREE and key not in sections
    }
    for name, record in sections.items():
        binding = record.options.binding(document.get(name)) if record.measured else None
        bound |= {name: binding} if binding else {}
    return bound


def _without(section: Any, names: frozenset[str], *, nested: bool) -> Any:
    """A section without some options; those of a frontend stand below its name."""
    if not isinstance(section, Mapping):
        return section
    if nested:
        return {name: _without(inner, names, nested=False) for name, inner in section.items()}
    return {name: value for name, value in section.items() if name not in names}


def _same_stage(stage: str | None, other: str | None) -> bool:
    """Whether two names, as JSON, are one if only one of them says the distribution.

    With a plugin that has a name of this project's, that name is written in full.
    """
    if stage is None or other is None or (":" in stage) == (":" in other):
        return False
    short, also = (str(json.loads(name)).rpartition(":")[2] for name in (stage, other))
    return short == also


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every key of nested JSON values with its value as JSON, as ``budget.patience`` and ``32``.

    Args:
        value: mappings are gone into; lists stay whole.
        name: of the value itself.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, json.dumps(value, default=str)
