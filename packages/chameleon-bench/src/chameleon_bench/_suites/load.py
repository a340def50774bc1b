"""Reads a suite file, checks every pairing of pipeline and task, and reports all errors.

The module also finds the versions and source digests of distributions that affect a cell's result.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.api import DocumentReader, Registry, ResolvedPipeline, local_plugins, words
from chameleon_core.plugin_api import CommandRecord, Node, PipelineError, PresetRecord, load_factory

from chameleon_bench._suites.recorded import RecordedSpace, all_measurements
from chameleon_bench._suites.suite import Pairing, Suite

SHARED = ("target", *Registry.stages, "budget", "baselines")
"""Keys of a pipeline that a suite may set for all cells; a pipeline's own keys override them."""

KEYS = ("title", "pipelines", "tasks", "seeds", "compare", "score", "data", *SHARED, "output")
"""All keys of a suite file."""


def load_suite(
    path: str | Path, overrides: Iterable[str] = (), *, registry: Registry | None = None
) -> Suite:
    """Read a suite file."""
    source, overrides = Path(path).resolve(), tuple(overrides)
    wanted = "a suite must be a mapping with 'pipelines:' and 'tasks:'"
    reader = _SuiteReader(path, overrides, registry, keys=KEYS, wanted=wanted)
    return reader.suite(source, source.read_text(encoding="utf-8-sig"), overrides)


class _SuiteReader(DocumentReader):
    """Checks a suite, and collects the problems of all its parts."""

    _spaces: dict[str, RecordedSpace] | None = None
    """The recorded space of each task, if the suite has a score."""

    def suite(self, source: Path, text: str, overrides: tuple[str, ...]) -> Suite:
        title = self.value(self.root, "title", str, source.stem)
        seeds = self._seeds()
        compare = self.value(self.root, "compare", bool, default=False)
        if self.value(self.root, "score", bool, default=False):
            self._spaces = {}
        output = self.value(self.root, "output", str, f"bench/{source.stem}")
        data = None if (path := self.root.get("data")) is None else path.absolute()
        pipelines = pipelines_of(self)
        tasks = tasks_of(self, data)
        pairings = [
            pairing
            for task in tasks
            for pipeline in pipelines
            if (pairing := self._pairing(pipeline, task, compare=compare)) is not None
        ]
        self.check()
        return Suite(
            title=title,
            pairings=tuple(pairings),
            seeds=seeds,
            output=Path.cwd() / Path(output).expanduser(),
            spaces=self._spaces or {},
            text=text,
            source=source,
            overrides=overrides,
        )

    def _pairing(self, pipeline: SuiteEntry, task: SuiteEntry, *, compare: bool) -> Pairing | None:
        resolved = self._resolved(pipeline, task)
        if resolved is None or self.problems:
            return None
        document = dict(resolved.document)
        if not compare:
            document["baselines"] = []
        document.pop("require", None)
        # Records of earlier runs must not decide which pipeline is better.
        document.pop("records", None)
        self._budget(task, resolved, document)
        measures_hardware = True
        with self.collecting():
            # A rival measures in its own way, whatever the suite's runner is.
            stage = resolved.runner.factory if pipeline.rival is None else pipeline.rival_factory
            measures_hardware = bool(getattr(load_factory(stage), "measures_hardware", True))
        # The default target resolver, and the rival that runs instead of the pipeline.
        more = {"target": getattr(resolved.target_resolver, "name", None), "rival": pipeline.rival}
        return Pairing(
            pipeline=pipeline.name,
            task=task.name,
            document=document,
            rival=pipeline.rival,
            measures_hardware=measures_hardware,
            versions=versions_of([document, more], self.registry),
        )

    def _budget(
        self, task: SuiteEntry, resolved: ResolvedPipeline, document: dict[str, Any]
    ) -> None:
        """Set the budget that the score's methodology gives to the task's space."""
        if self._spaces is None:
            return
        with self.collecting():
            if task.name not in self._spaces:
                measured = all_measurements(resolved)
                self._spaces[task.name] = RecordedSpace.of(measured)
            budget = {"measurements": self._spaces[task.name].budget, "wall_time": None}
            document["budget"] = {**document["budget"], **budget}

    def _resolved(self, pipeline: SuiteEntry, task: SuiteEntry) -> ResolvedPipeline | None:
        # The suite adds the seeds later, and has its own output folder.
        output = self.root.with_value({"output": "bench"})
        with self.collecting():
            return self.pipeline(self.root.only(SHARED), output, pipeline.sections, task.sections)
        return None

    def _seeds(self) -> tuple[int, ...]:
        node = self.root.get("seeds")
        if node is None:
            return (0,)
        with self.collecting():
            if node.is_sequence:
                seeds = tuple(self.structurer.make(node, list[int], "'seeds'"))
            else:
                seeds = tuple(range(self.structurer.make(node, int, "'seeds'")))
            if not seeds or min(seeds) < 0:
                self.say(node.mark, "'seeds' must be a number of at least 1, or a list of seeds")
            if len(set(seeds)) < len(seeds):
                self.say(node.mark, "'seeds' lists a seed twice; a second run would be the same")
            return seeds
        return (0,)


ALWAYS = {"chameleon-tuner-core": "chameleon_core", "chameleon-tuner-system": "chameleon_system"}
"""The distributions that take part in every run, each with its import package."""

_DIGITS = 12
"""The number of digits of a source digest, enough to avoid collisions."""


def versions_of(documents: Any, registry: Registry) -> dict[str, str]:
    """The versions of the distributions whose plugins take part in a run."""
    named = set(_texts(documents))
    packages = {name: {package} for name, package in ALWAYS.items()}
    for kind in registry.kinds:
        for entry in registry.entries(kind):
            if isinstance(entry.record, CommandRecord | PresetRecord):
                continue
            if named & {entry.name, f"{entry.distribution}:{entry.name}"}:
                package = entry.record.factory.partition(":")[0].partition(".")[0]
                packages.setdefault(entry.distribution, set()).add(package)
    return {name: version_of(name, frozenset(names)) for name, names in sorted(packages.items())}


@functools.cache
def version_of(distribution: str, packages: Collection[str]) -> str:
    """The version of a distribution, with a digest of its sources if it is editable."""
    if local_plugins.is_local(distribution):
        return f"given, sources {_digest(packages)}"
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"  # the plugin was registered in this process
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return installed.version
    return f"{installed.version}, sources {_digest(packages)}"


def _digest(packages: Collection[str]) -> str:
    digest = hashlib.sha256()
    for file, name in _sources(packages):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:_DIGITS]


def _sources(packages: Collection[str]) -> Iterator[tuple[Path, str]]:
    """The files of import packages, each with its name in its package, in a fixed order."""
    for package in sorted(packages):
        spec = importlib.util.find_spec(package)
        if spec is None:
            continue
        for directory in spec.submodule_search_locations or ():
            folder = Path(directory)
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    yield file, f"{package}/{file.relative_to(folder).as_posix()}"
        if spec.submodule_search_locations is None and spec.origin is not None:
            yield Path(spec.origin), package


def _texts(value: Any) -> Iterator[str]:
    """All strings in JSON values, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


# ----- pipelines and tasks -------------------------------------------------------------------

SOURCES = ("table", "operator", "model")
"""The kinds of tasks of a suite: a recorded table, one operator, or a whole ``model`` section."""

RECORDED: dict[str, str] = {"space": "table", "runner": "replay", "target": "llvm"}
"""The stages for recorded tables. The target has no influence, but must exist."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_OURS = frozenset({"model", "seed", "output", "require"})


@attrs.frozen(kw_only=True)
class SuiteEntry:
    """One pipeline or one task, as a suite file lists it.

    Attributes:
        sections: The keys of a pipeline file that the entry sets.
        rival: For a pipeline that is another tuner: ``{"name": ..., options}``; otherwise None.
        rival_factory: The class of the rival.
    """

    name: str
    sections: Node
    rival: Mapping[str, Any] | None = None
    rival_factory: str | type = ""


def pipelines_of(reader: DocumentReader) -> list[SuiteEntry]:
    """Read the pipelines that a suite file compares."""
    node = reader.root.get("pipelines")
    if node is None or not node.is_mapping or not node.value:
        mark = (node or reader.root).mark
        reader.say(mark, "a suite needs 'pipelines', a mapping of names to stages or presets")
        return []
    entries = []
    for name, item in node.items():
        if not _NAME.fullmatch(name):
            reader.say(item.key_mark, _misnamed("pipeline", name))
            continue
        with reader.collecting():
            entries.append(_pipeline(name, item.node, reader))
    return entries


def _pipeline(name: str, node: Node, reader: DocumentReader) -> SuiteEntry:
    if isinstance(node.value, str):
        return SuiteEntry(name=name, sections=node.with_value({"preset": node}))
    if node.value is None:
        return SuiteEntry(name=name, sections=node.with_value({}))
    if not node.is_mapping:
        wanted = "must be a preset's name or a mapping of stages"
        raise PipelineError.at(node.mark, f"pipeline '{name}' {wanted}, not {node.in_words()}")
    if node.get("rival") is not None:
        rival, factory = _rival(node, reader)
        sections = node.with_value({})
        return SuiteEntry(name=name, sections=sections, rival=rival, rival_factory=factory)
    for key, item in node.only(_OURS).items():
        more = "; write it under 'tasks'" if key == "model" else ""
        message = f"'{key}' belongs to the suite and not to pipeline '{name}'{more}"
        reader.say(item.key_mark, message)
    return SuiteEntry(name=name, sections=node.without(*_OURS))


def _rival(node: Node, reader: DocumentReader) -> tuple[dict[str, Any], str | type]:
    chosen: Node = node.value["rival"].node
    if not isinstance(chosen.value, str):
        raise PipelineError.at(
            chosen.mark, f"'rival' must name a rival, not be {chosen.in_words()}"
        )
    spec = reader.spec("rivals", chosen, lambda _: node.without("rival"))
    if spec is None:
        raise PipelineError([])
    return {"name": spec.name, **spec.options_json}, spec.record.factory


def tasks_of(reader: DocumentReader, data: Node | None) -> list[SuiteEntry]:
    """Read the tasks on which a suite file compares its pipelines."""
    node = reader.root.get("tasks")
    if node is None or not node.is_sequence or not node.value:
        mark = (node or reader.root).mark
        reader.say(
            mark, f"a suite needs 'tasks', a list whose entries are {words.listing(SOURCES)}"
        )
        return []
    entries: dict[str, SuiteEntry] = {}
    for task in node.value:
        with reader.collecting():
            entry = _task(task, reader, data)
            if entry.name in entries:
                message = f"two tasks are called '{entry.name}'; give one of them another 'name'"
                reader.say(task.mark, message)
            entries.setdefault(entry.name, entry)
    return list(entries.values())


def _task(node: Node, reader: DocumentReader, data: Node | None) -> SuiteEntry:
    sources = [key for key in SOURCES if node.get(key) is not None]
    if len(sources) != 1:
        wanted = words.listing([repr(key) for key in SOURCES])
        there = " and ".join(sources) or node.in_words()
        message = f"a task has one key that says what is tuned, {wanted}, not {there}"
        raise PipelineError.at(node.mark, message)
    keys = Registry.default().pipeline_keys
    allowed = ["name", *SOURCES, *(key for key in keys if key not in _OURS)]
    reader.expect_keys(node, allowed)
    source = node.value[sources[0]].node
    sections, name = _SOURCES[sources[0]](source, reader.root, data)
    chosen = node.get("name")
    if chosen is not None:
        name = str(chosen.value)
    if not _NAME.fullmatch(name):
        mark = (chosen or source).mark
        raise PipelineError.at(mark, _misnamed("task", name))
    own = {key: item.node for key, item in node.items() if key in keys and key not in _OURS}
    return SuiteEntry(name=name, sections=node.with_value({**sections, **own}))


Sections = tuple[dict[str, Any], str]
"""The keys of a pipeline file that a task sets, and the task's default name."""


def _table(node: Node, root: Node, data: Node | None) -> Sections:
    if not isinstance(node.value, str):
        raise PipelineError.at(node.mark, f"'table' must be a file's name, not {node.in_words()}")
    file = (
        node.absolute().value if data is None else Path(data.value) / Path(node.value).expanduser()
    )
    path = str(file)
    if not Path(path).exists():
        hint = "say where the tables are with 'data' or --set data=FOLDER"
        raise PipelineError.at(node.mark, f"there is no table {path}; {hint}")
    name = Path(path).name.removesuffix(".gz").removesuffix(".json")
    stages = {key: v for key, v in RECORDED.items() if key != "target" or root.get(key) is None}
    return {"model": {"table": path}, **stages}, name


def _operator(node: Node, _root: Node, _data: Node | None) -> Sections:
    name = "operator"
    if node.is_mapping and len(node.value) == 1:
        ((kind, item),) = node.items()
        own = item.node.get("name")
        name = kind if own is None else str(own.value)
    return {"model": {"operators": [node]}}, name


def _model(node: Node, _root: Node, _data: Node | None) -> Sections:
    return {"model": node}, next((key for key, _ in node.items()), "model")


_SOURCES = {"table": _table, "operator": _operator, "model": _model}


def _misnamed(noun: str, name: str) -> str:
    return f"{noun} '{name}' must be named with letters, digits, '-', '_', '.' and '+'"
