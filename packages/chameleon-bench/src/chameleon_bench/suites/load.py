"""Reads a suite file: every pairing of pipeline and task checked, or everything that is wrong.

A cell's result depends on code, too: versions of distributions, and sources under work.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from chameleon_core.pipeline.assemble import Assembler
from chameleon_core.pipeline.nodes import Collecting, Item, Node, PipelineError, Problem
from chameleon_core.pipeline.paths import absolute
from chameleon_core.pipeline.resolve import STAGES, apply_overrides, merge
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.pipeline.yaml import read_yaml
from chameleon_core.plugins import CommandRecord, PresetRecord
from chameleon_core.plugins.factory import load_factory
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.given import canonical, given
from chameleon_core.plugins.registry import Registry, default_registry
from chameleon_core.words import did_you_mean

from chameleon_bench.suites.entries import SuiteEntry, pipelines_of, tasks_of
from chameleon_bench.suites.suite import Pairing, Suite

SHARED = ("target", *STAGES, "budget", "baselines")
"""Keys of a pipeline that a suite may give once for all cells; what a pipeline says wins."""

KEYS = ("title", "pipelines", "tasks", "seeds", "compare", "data", *SHARED, "output")
"""Every key of a suite file."""


def load_suite(
    path: str | Path, overrides: Iterable[str] = (), *, registry: Registry | None = None
) -> Suite:
    """Read a suite file.

    Args:
        path: the file; errors call it as it is given here.
        overrides: assignments such as ``seeds=3``, stronger than the file.
        registry: where names are looked up; the installed plugins where None.

    Raises:
        PipelineError: with everything that is wrong, one line each.
        ConfigError: the file cannot be read.
    """
    file = Path(path)
    changes = tuple(overrides)
    root = read_yaml(file, shown=str(path))
    if not root.is_mapping:
        message = f"a suite must be a mapping with 'pipelines:' and 'tasks:', not {root.in_words()}"
        raise PipelineError([Problem(mark=root.mark, message=message)])
    root, problems = apply_overrides(root, changes)
    loader = _Loader(root, registry or default_registry(), problems)
    return loader.load(file.resolve(), file.read_text(encoding="utf-8-sig"), changes)


class _Loader:
    """Checks one suite and collects the problems of all of its parts."""

    def __init__(self, root: Node, registry: Registry, problems: list[Problem]) -> None:
        self._root = root
        self._registry = registry
        self._problems = problems
        self._stages = StageReader(registry, problems)
        self._structurer = self._stages.structurer

    def load(self, source: Path, text: str, overrides: tuple[str, ...]) -> Suite:
        for key, item in self._root.items():
            if key not in KEYS:
                self._say(item.key_mark, f"unknown key '{key}'{did_you_mean(key, KEYS)}")
        title = self._stages.value(self._root, "title", str, source.stem)
        seeds = self._seeds()
        compare = self._stages.value(self._root, "compare", bool, default=False)
        output = self._stages.value(self._root, "output", str, f"bench/{source.stem}")
        data = None if (given := self._root.get("data")) is None else absolute(given)
        pipelines = pipelines_of(self._root, self._stages, self._problems)
        tasks = tasks_of(self._root, data, self._problems)
        pairings = [
            pairing
            for task in tasks
            for pipeline in pipelines
            if (pairing := self._pairing(pipeline, task, compare=compare)) is not None
        ]
        if self._problems:
            raise PipelineError(
                self._problems, hint="\n".join(dict.fromkeys(self._stages.hints)) or None
            )
        return Suite(
            title=title,
            pairings=tuple(pairings),
            seeds=seeds,
            output=Path.cwd() / Path(output).expanduser(),
            text=text,
            source=source,
            overrides=overrides,
        )

    def _pairing(self, pipeline: SuiteEntry, task: SuiteEntry, *, compare: bool) -> Pairing | None:
        resolved = self._resolved(pipeline, task)
        if resolved is None or self._problems:
            return None
        document = dict(resolved.document)
        if not compare:
            document["baselines"] = []
        document.pop("require", None)
        # What somebody measured before must not decide between pipelines.
        document.pop("records", None)
        measures_hardware = pipeline.rival is not None
        with Collecting(self._problems):
            # A rival is a process that measures, whatever the suite's runner is.
            measures_hardware = measures_hardware or bool(
                getattr(load_factory(resolved.runner.factory), "measures_hardware", True)
            )
        # What the pipeline leaves open, and who competes in its place.
        more = {"target": getattr(resolved.target_resolver, "name", None), "rival": pipeline.rival}
        return Pairing(
            pipeline=pipeline.name,
            task=task.name,
            document=document,
            rival=pipeline.rival,
            measures_hardware=measures_hardware,
            versions=versions_of([document, more], self._registry),
        )

    def _resolved(self, pipeline: SuiteEntry, task: SuiteEntry) -> ResolvedPipeline | None:
        shared = {key: item for key, item in self._root.items() if key in SHARED}
        sections = merge(merge(shared, pipeline.sections), task.sections)
        # Seeds are dealt later; the output's place is the suite's.
        output = Node(value="bench", mark=self._root.mark)
        sections["output"] = Item(key_mark=output.mark, node=output)
        try:
            root = Node(value=sections, mark=task.mark)
            return Assembler(root, self._registry, []).assemble(None)
        except PipelineError as error:
            self._problems.extend(error.problems)
            self._stages.hints.append(error.hint or "")
            return None

    def _seeds(self) -> tuple[int, ...]:
        node = self._root.get("seeds")
        if node is None:
            return (0,)
        with Collecting(self._problems):
            if node.is_sequence:
                seeds = tuple(self._structurer.make(node, list[int], "'seeds'"))
            else:
                seeds = tuple(range(self._structurer.make(node, int, "'seeds'")))
            if not seeds or min(seeds) < 0:
                self._say(node.mark, "'seeds' must be a number of at least 1, or a list of seeds")
            if len(set(seeds)) < len(seeds):
                self._say(node.mark, "'seeds' lists a seed twice; a second run would be the same")
            return seeds
        return (0,)

    def _say(self, mark: Any, message: str) -> None:
        self._problems.append(Problem(mark=mark, message=message))


ALWAYS = {CORE: "chameleon_core", "chameleon-tuner-system": "chameleon_system"}
"""These distributions take part in every run; each with its package."""

_DIGITS = 12
"""A digest of sources has so many digits: two states of a package never share one by chance."""


def versions_of(documents: Any, registry: Registry) -> dict[str, str]:
    """The distributions whose plugins take part in a run, each with its version.

    Args:
        documents: JSON values, such as the expanded pipeline. Whatever bears a plugin's name in
            them takes part, the members of a portfolio for example: a distribution too many costs
            a repetition, one too few a wrong result.
        registry: knows who registers which name.

    Returns:
        The version of each distribution by name, with a digest of its sources where it is editable.
    """
    named = set(_texts(documents))
    packages = {name: {package} for name, package in ALWAYS.items()}
    for kind in registry.kinds:
        for entry in registry.entries(kind):
            if isinstance(entry.record, CommandRecord | PresetRecord):
                continue
            if named & {entry.name, f"{entry.distribution}:{entry.name}"}:
                package = entry.record.factory.partition(":")[0].partition(".")[0]
                packages.setdefault(entry.distribution, set()).add(package)
    return {name: version_of(name, frozenset(found)) for name, found in sorted(packages.items())}


@functools.cache
def version_of(distribution: str, packages: Collection[str]) -> str:
    """What tells one state of a distribution from another.

    Args:
        distribution: its name.
        packages: the import packages of it that matter, hashable.
    """
    if any(canonical(one.distribution) == canonical(distribution) for one in given()):
        return f"given, sources {_digest(packages)}"
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"  # a registry made in this process
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return found.version
    return f"{found.version}, sources {_digest(packages)}"


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
        for place in spec.submodule_search_locations or ():
            folder = Path(place)
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    yield file, f"{package}/{file.relative_to(folder).as_posix()}"
        if spec.submodule_search_locations is None and spec.origin is not None:
            yield Path(spec.origin), package


def _texts(value: Any) -> Iterator[str]:
    """Every text in JSON values, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
