"""Compares the parts of a pipeline that must not change in a run folder.

The measurements in the folder depend on these parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._plugins.kinds import STAGES
from chameleon_core._plugins.options import former_names, renamed

_FREE = frozenset({"output", "budget", "require", "preset", "baselines", "records"})
"""Keys of a pipeline that measurements do not depend on, such as the length of the search. A run
copies the records of its databases when it begins."""

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
    before, now = (dict(flat(_bound(document, pipeline))) for document in (old, pipeline.document))
    names = {f"{key}.name" for key in STAGES}
    lines = [
        f"{name} was {before.get(name, 'not set')} and is {now.get(name, 'not set')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
        and not (name in names and _same_stage(before.get(name), now.get(name)))
    ]
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return "; ".join(lines[:_NAMED]) + more or None


def _bound(document: Mapping[str, Any], pipeline: ResolvedPipeline) -> dict[str, Any]:
    """The parts of a document that records depend on, with the present names of options."""
    sections = pipeline.registry.sections
    bound = {key: document[key] for key in document.keys() - sections.keys() - _FREE}
    for key in bound.keys() & {"model", *STAGES}:
        section, options = bound[key], getattr(pipeline, key).record.options
        if key == "model":
            bound[key] = {name: _binding(inner, options) for name, inner in section.items()}
        else:
            bound[key] = _binding(section, options)
    for name, record in sections.items():
        binding = record.options.binding(document.get(name)) if record.measured else None
        bound |= {name: binding} if binding else {}
    return bound


def _binding(section: Any, options: type) -> Any:
    """The options of a section that records depend on, with their present names."""
    if not isinstance(section, Mapping):
        return section
    free = {field.alias for field in attrs.fields(options) if not field.metadata.get("binds", True)}
    current = renamed(section, former_names(options))
    return {name: value for name, value in current.items() if name not in free}


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
