"""The key ``records`` of a pipeline: which databases a run looks into and adds to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.pipeline.nodes import Item, Mark, Node, Problem
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.manager import Registration
from chameleon_core.plugins.registry import Registry

ENVIRONMENT = "CHAMELEON_RECORDS"
"""The variable that says what ``default`` means: ``none``, or another place than the user's own."""

NONE, DEFAULT = "none", "default"

_KIND = "record_databases"


@attrs.frozen(kw_only=True)
class Databases:
    """The databases of a pipeline.

    Attributes:
        specs: as in ``ResolvedPipeline.records``.
        written: as in ``ResolvedPipeline.document``; None where nothing was written.
    """

    specs: tuple[StageSpec, ...] | None = None
    written: Any = None


def databases_of(
    root: Node,
    stages: StageReader,
    registry: Registry,
    problems: list[Problem],
    *,
    by_default: bool,
) -> Databases:
    """Read the key: a place, ``none``, ``default``, a mapping with a ``name``, or a list of these.

    Args:
        root: the pipeline.
        stages: reads stages.
        registry: knows which databases are installed.
        problems: what is wrong is added to it.
        by_default: whether a pipeline without the key means ``default``.
    """
    node = root.get("records")
    if node is None or node.value is None:
        if not by_default or len(_of_places(registry)) != 1:
            return Databases()
        mark = Mark(source="records", author=CORE)
        return Databases(specs=_specs(Node(value=DEFAULT, mark=mark), stages, registry, problems))
    entries = node.value if node.is_sequence else (node,)
    if len(entries) > 1 and any(one.value == NONE for one in entries):
        message = f"'{NONE}' stands alone; remove it, or the others"
        problems.append(Problem(mark=node.mark, message=message))
    specs: list[StageSpec] = []
    written: list[Any] = []
    for entry in entries:
        made = _specs(entry, stages, registry, problems)
        specs += made
        # What a word means is another thing elsewhere.
        word = entry.value if entry.value in (NONE, DEFAULT) else None
        written += [word] if word else [spec.to_json() for spec in made]
    return Databases(specs=tuple(specs), written=written[0] if len(written) == 1 else written)


def _specs(
    node: Node, stages: StageReader, registry: Registry, problems: list[Problem]
) -> tuple[StageSpec, ...]:
    text = node.value
    if isinstance(text, str):
        if text == DEFAULT:
            text = _by_environment()
        if text == NONE:
            return ()
        known = _of_places(registry)
        if len(known) != 1:
            names = ", ".join(registry.full_name(entry) for entry in known) or "none"
            message = f"a place alone means one kind of record database, and {names} of the "
            message += "installed ones take places; write a mapping with its 'name'"
            problems.append(Problem(mark=node.mark, message=message))
            return ()
        [entry] = known
        mark = attrs.evolve(node.mark, author=CORE)
        name = Node(value=registry.full_name(entry), mark=mark)
        value = {"name": Item(key_mark=node.mark, node=name)}
        if text != DEFAULT:
            place = Node(value=text, mark=node.mark)
            value[entry.record.place_option] = Item(key_mark=node.mark, node=place)
        node = Node(value=value, mark=node.mark)
    spec = stages.chosen("a record database", _KIND, node)
    return () if spec is None else (spec,)


def _of_places(registry: Registry) -> list[Registration]:
    """The databases that are named by where they are."""
    return [entry for entry in registry.entries(_KIND) if entry.record.place_option]


def _by_environment() -> str:
    """What ``default`` means here: a word, a URL, or a path relative to the working folder."""
    text = os.environ.get(ENVIRONMENT, "") or DEFAULT
    if text in {NONE, DEFAULT} or "://" in text:
        return text
    return str(Path(text).expanduser().absolute())
