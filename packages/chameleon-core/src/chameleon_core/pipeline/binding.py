"""The parts of a pipeline that must not change in a run folder, as records depend on them."""

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
"""Keys of a pipeline that measurements do not depend on: the length of the search, the folder, the
baselines, and the record databases, whose records a run copies when it begins."""

_NAMED = 4
"""Number of differences that a message names."""


def difference(old: Mapping[str, Any], pipeline: ResolvedPipeline) -> str | None:
    """Describe how a pipeline differs from an earlier one, in the parts that records depend on.

    Options that cannot change a measured time do not count. Examples are a deadline, the address of
    a tracker and the number of attempts.

    Args:
        old: ``ResolvedPipeline.document`` of the earlier pipeline.
        pipeline: the present pipeline.

    Returns:
        A message such as ``seed was 0 and is 1``, or None if there is no difference.
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
    """The names of the options that records do not depend on, by key of the pipeline."""
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
    """A document with the present names of renamed options."""
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
    """A section without some options. If ``nested``, the options are below a frontend's name."""
    if not isinstance(section, Mapping):
        return section
    if nested:
        return {name: _without(inner, names, nested=False) for name, inner in section.items()}
    return {name: value for name, value in section.items() if name not in names}


def _same_stage(stage: str | None, other: str | None) -> bool:
    """Whether two names (as JSON) name the same stage, one of them with its distribution.

    If another plugin has the same name as a stage of this project, the stage's name is written with
    its distribution.
    """
    if stage is None or other is None or (":" in stage) == (":" in other):
        return False
    short, also = (str(json.loads(name)).rpartition(":")[2] for name in (stage, other))
    return short == also


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of nested JSON values with its value, such as ``budget.patience`` and ``32``.

    Args:
        value: the JSON value. Keys of mappings are joined by dots; lists are not split.
        name: the key of the value itself.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, json.dumps(value, default=str)
