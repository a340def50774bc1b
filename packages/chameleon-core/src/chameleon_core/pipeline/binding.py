"""What a run folder's records depend on, and so what binds the folder to a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from chameleon_core.pipeline.precision import Precision
from chameleon_core.pipeline.resolve import STAGES
from chameleon_core.pipeline.schema import ResolvedPipeline, StageSpec
from chameleon_core.plugins.options import BINDS, former_names, renamed

_FREE = frozenset({"output", "budget", "require", "preset", "baselines", "records", "transform"})
"""Keys of a pipeline that no measurement depends on: how long it may search, where it writes, what
the winners are compared with, where else there are records, which a run copies as it begins, and
how `chameleon transform` changes the network."""


def difference(old: Mapping[str, Any], pipeline: ResolvedPipeline, *, most: int = 4) -> str | None:
    """How a pipeline differs, in what records depend on, from one that was written down.

    A deadline, the place of a tracker or the number of attempts decide whether there is a
    measurement, not what it says.

    Args:
        old: ``ResolvedPipeline.document`` of the other one.
        pipeline: the pipeline.
        most: differences that are named.

    Returns:
        As ``seed was 0 and is 1``, or None where there is no difference.
    """
    free = _free_options(pipeline)
    before, now = (
        dict(flat(_bound(_in_current_names(one, pipeline), free)))
        for one in (old, pipeline.document)
    )
    names = {f"{key}.name" for key in STAGES}
    told = [
        f"{name} was {before.get(name, 'not set')} and is {now.get(name, 'not set')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
        and not (name in names and _same_stage(before.get(name), now.get(name)))
    ]
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return "; ".join(told[:most]) + more or None


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


def _bound(document: Mapping[str, Any], free: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    bound = {
        key: _without(section, free.get(key, frozenset()), nested=key == "model")
        for key, section in document.items()
        if key not in _FREE
    }
    precision = Precision.from_json(document.get("precision")).binding
    return {**bound, "precision": precision} if precision else bound


def _without(section: Any, names: frozenset[str], *, nested: bool) -> Any:
    """A section without some options; those of a frontend stand below its name."""
    if not isinstance(section, Mapping):
        return section
    if nested:
        return {name: _without(inner, names, nested=False) for name, inner in section.items()}
    return {name: value for name, value in section.items() if name not in names}


def _same_stage(one: str | None, other: str | None) -> bool:
    """Whether two names, as JSON, are one where only one of them says the distribution.

    With a plugin that has a name of this project's, that name is written in full.
    """
    if one is None or other is None or (":" in one) == (":" in other):
        return False
    short, also = (str(json.loads(name)).rpartition(":")[2] for name in (one, other))
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
