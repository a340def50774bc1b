"""The two lists of a suite file: its pipelines and its tasks, as sections of a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.pipeline.nodes import Collecting, Item, Mark, Node, PipelineError, Problem
from chameleon_core.pipeline.paths import absolute
from chameleon_core.pipeline.resolve import KEYS as PIPELINE_KEYS
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.words import did_you_mean, listing

SOURCES = ("table", "operator", "model")
"""What a task of a suite can be: a recorded table, one operator, or a whole ``model`` section."""

RECORDED: dict[str, str] = {"space": "table", "runner": "replay", "target": "llvm"}
"""What a recorded table is searched and measured with. It was recorded on a target of its own;
the one named here only has to exist."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_OURS = frozenset({"model", "seed", "output", "require"})


@attrs.frozen(kw_only=True)
class SuiteEntry:
    """One pipeline or one task of a suite.

    Attributes:
        name: what reports call it; also a folder's name.
        sections: keys of a pipeline file.
        mark: where it was written.
        rival: for a pipeline that is another tuner, ``{"name": ..., options}``.
    """

    name: str
    sections: dict[str, Item]
    mark: Mark
    rival: Mapping[str, Any] | None = None


def pipelines_of(root: Node, stages: StageReader, problems: list[Problem]) -> list[SuiteEntry]:
    """The suite's pipelines: each the name of a preset, stages, or a rival.

    Args:
        root: the suite.
        stages: reads the rivals.
        problems: what is wrong is added here.
    """
    node = root.get("pipelines")
    if node is None or not node.is_mapping or not node.value:
        mark = root.mark if node is None else node.mark
        _say(problems, mark, "a suite needs 'pipelines', a mapping of names to stages or presets")
        return []
    entries = []
    for name, item in node.items():
        if not _NAME.fullmatch(name):
            _say(problems, item.key_mark, _misnamed("pipeline", name))
            continue
        with Collecting(problems):
            entries.append(_pipeline(name, item, stages))
    return entries


def _pipeline(name: str, item: Item, stages: StageReader) -> SuiteEntry:
    node = item.node
    if isinstance(node.value, str):
        preset = Item(key_mark=node.mark, node=node)
        return SuiteEntry(name=name, sections={"preset": preset}, mark=item.key_mark)
    if node.value is None:
        return SuiteEntry(name=name, sections={}, mark=item.key_mark)
    if not node.is_mapping:
        wanted = "must be a preset's name or a mapping of stages"
        raise _wrong(node.mark, f"pipeline '{name}' {wanted}, not {node.in_words()}")
    if node.get("rival") is not None:
        rival = _rival(node, stages)
        return SuiteEntry(name=name, sections={}, mark=item.key_mark, rival=rival)
    wrong = [
        Problem(
            mark=inner.key_mark,
            message=f"'{key}' belongs to the suite and not to pipeline '{name}'"
            + ("; write it under 'tasks'" if key == "model" else ""),
        )
        for key, inner in node.items()
        if key in _OURS
    ]
    if wrong:
        raise PipelineError(wrong)
    return SuiteEntry(name=name, sections=dict(node.items()), mark=item.key_mark)


def _rival(node: Node, stages: StageReader) -> dict[str, Any]:
    chosen: Node = node.value["rival"].node
    if not isinstance(chosen.value, str):
        raise _wrong(chosen.mark, f"'rival' must name a rival, not be {chosen.in_words()}")
    options = {key: item for key, item in node.items() if key != "rival"}
    spec = stages.spec("rivals", chosen, lambda _: Node(value=options, mark=node.mark))
    if spec is None:
        raise PipelineError([])
    return {"name": spec.name, **spec.options_json}


def tasks_of(root: Node, data: Node | None, problems: list[Problem]) -> list[SuiteEntry]:
    """The suite's tasks.

    Args:
        root: the suite.
        data: the folder that tables are in, absolute; the suite's own where None.
        problems: what is wrong is added here.
    """
    node = root.get("tasks")
    if node is None or not node.is_sequence or not node.value:
        mark = root.mark if node is None else node.mark
        _say(problems, mark, f"a suite needs 'tasks', a list whose entries are {listing(SOURCES)}")
        return []
    entries: dict[str, SuiteEntry] = {}
    for task in node.value:
        with Collecting(problems):
            entry = _task(task, root, data)
            if entry.name in entries:
                message = f"two tasks are called '{entry.name}'; give one of them another 'name'"
                _say(problems, task.mark, message)
            entries.setdefault(entry.name, entry)
    return list(entries.values())


def _task(node: Node, root: Node, data: Node | None) -> SuiteEntry:
    given = [key for key in SOURCES if node.get(key) is not None]
    if len(given) != 1:
        wanted = listing([repr(key) for key in SOURCES])
        there = " and ".join(given) or node.in_words()
        message = f"a task has one key that says what is tuned, {wanted}, not {there}"
        raise _wrong(node.mark, message)
    allowed = ["name", *SOURCES, *(key for key in PIPELINE_KEYS if key not in _OURS)]
    wrong = [
        Problem(mark=item.key_mark, message=f"unknown key '{key}'{did_you_mean(key, allowed)}")
        for key, item in node.items()
        if key not in allowed
    ]
    if wrong:
        raise PipelineError(wrong)
    source = node.value[given[0]]
    sections, name = _SOURCES[given[0]](source, root, data)
    chosen = node.get("name")
    if chosen is not None:
        name = str(chosen.value)
    if not _NAME.fullmatch(name):
        mark = (chosen or source.node).mark
        raise _wrong(mark, _misnamed("task", name))
    rest = {key: item for key, item in node.items() if key not in {"name", *SOURCES}}
    return SuiteEntry(name=name, sections={**sections, **rest}, mark=node.mark)


Sections = tuple[dict[str, Item], str]
"""Keys of a pipeline file, and the name of a task if nobody gives it one."""


def _table(source: Item, root: Node, data: Node | None) -> Sections:
    node = source.node
    if not isinstance(node.value, str):
        raise _wrong(node.mark, f"'table' must be a file's name, not {node.in_words()}")
    place = (
        absolute(node).value if data is None else Path(data.value) / Path(node.value).expanduser()
    )
    path = str(place)
    if not Path(path).exists():
        hint = "say where the tables are with 'data' or --set data=FOLDER"
        raise _wrong(node.mark, f"there is no table {path}; {hint}")
    name = Path(path).name.removesuffix(".gz").removesuffix(".json")
    sections = {
        key: _item(value, source)
        for key, value in RECORDED.items()
        if key != "target" or root.get("target") is None
    }
    return {"model": _item({"table": _item(path, source)}, source), **sections}, name


def _operator(source: Item, _root: Node, _data: Node | None) -> Sections:
    node = source.node
    name = "operator"
    if node.is_mapping and len(node.value) == 1:
        ((kind, item),) = node.items()
        own = item.node.get("name")
        name = kind if own is None else str(own.value)
    model = {"operators": _item((node,), source)}
    return {"model": _item(model, source)}, name


def _model(source: Item, _root: Node, _data: Node | None) -> Sections:
    return {"model": source}, next((key for key, _ in source.node.items()), "model")


_SOURCES = {"table": _table, "operator": _operator, "model": _model}


def _item(value: Any, place: Item) -> Item:
    return Item(key_mark=place.key_mark, node=Node(value=value, mark=place.node.mark))


def _misnamed(noun: str, name: str) -> str:
    return f"{noun} '{name}' must be named with letters, digits, '-', '_', '.' and '+'"


def _wrong(mark: Mark, message: str) -> PipelineError:
    return PipelineError([Problem(mark=mark, message=message)])


def _say(problems: list[Problem], mark: Mark, message: str) -> None:
    problems.append(Problem(mark=mark, message=message))
