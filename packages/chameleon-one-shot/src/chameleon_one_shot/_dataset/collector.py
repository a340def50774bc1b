"""Collects a data set: it tunes tasks like those of networks, with several kinds of searches.

Random configurations are nearly all slow, so they would teach little (One-Shot Tuner, Ryu et al.,
CC 2022, section 4.3). A few tasks at a time are tuned in an ordinary run, whose measurements become
one part (file) of the data set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.api import (
    Interruption,
    RecordStore,
    Registry,
    RunFile,
    RunInterrupted,
    TaskSource,
    from_dict,
    run_pipeline,
    words,
)
from chameleon_core.plugin_api import ChameleonError, ConfigError, ModelChoice, Task

from chameleon_one_shot._dataset.format import (
    MANIFEST,
    PARTS,
    create,
    read_manifest,
    rows_in,
    write_part,
)
from chameleon_one_shot._dataset.from_run import tasks_of_run
from chameleon_one_shot._dataset.plan import Plan, differences
from chameleon_one_shot._dataset.sampling import HeldOut, ObservedTask, TaskSampler
from chameleon_one_shot._dataset.tasks import DatasetError, canonical, read_tasks, write_tasks

log = structlog.get_logger()

_TASKS = "tasks.json"

_MOST_FAILURES = 3
"""The number of failed runs in a row after which the collection ends."""


@attrs.frozen(kw_only=True)
class CollectionResult:
    """The result of collecting measurements for a data set.

    Attributes:
        failed_runs: sentences about the runs that ended early because of an error.
    """

    folder: Path
    tasks: int
    candidates: int
    failed_runs: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, eq=False)
class Collector:
    """Collects a data set by a plan, or continues an earlier collection.

    Attributes:
        interruption: holds a request to stop, if any.
        say: called with each message about progress.
        display: returns a context with a listener, which shows the events of one run.
        trust_source: whether code in the folder's tasks may be run.
    """

    plan: Plan
    registry: Registry
    interruption: Interruption
    say: Callable[[str], None]
    display: Callable[[], AbstractContextManager[object]]
    trust_source: bool = False

    def collect(self) -> CollectionResult:
        """Read the networks, draw tasks, and measure them; finished steps are not repeated."""
        output, amounts = self.plan.output, self.plan.amounts
        self._prepare_folder()
        search = self.plan.searches[0]
        target = TaskSource(search).target()
        tasks = self._tasks(target)
        device = TaskSource(search).device(target)
        starts = range(0, amounts.tasks, amounts.tasks_per_run)
        candidates, failed, consecutive = 0, [], 0
        for number, start in enumerate(starts):
            self.interruption.check()
            self.say(f"run {number + 1} of {len(starts)}, {candidates} candidates before it")
            count = min(amounts.tasks_per_run, amounts.tasks - start)
            try:
                candidates += self._run(number, start, count, device)
                consecutive = 0
            except RunInterrupted:
                raise
            except ChameleonError as error:
                self.interruption.check()
                failed.append(f"run {number}: {error}")
                consecutive += 1
                log.warning("collection_run_failed", run=number, problem=str(error))
                if consecutive == _MOST_FAILURES:
                    raise
        return CollectionResult(
            folder=output, tasks=len(tasks), candidates=candidates, failed_runs=tuple(failed)
        )

    def _prepare_folder(self) -> None:
        """Make the folder a data set of this plan; refuse a data set of another plan."""
        output = self.plan.output
        if (output / MANIFEST).exists():
            earlier = read_manifest(output).get("plan")
            changed = None if earlier is None else differences(earlier, self.plan.document)
            has_data = (self._folder / _TASKS).exists() or any((output / PARTS).glob("*.parquet"))
            if has_data and (changed or earlier is None):
                reason = f"{', '.join(changed)} changed" if changed else "it was not collected"
                raise DatasetError(
                    f"{output} is not of this plan: {reason}",
                    hint="Name another folder (`output=`); `chameleon dataset merge` joins them.",
                )
        create(output, self.plan.document)

    @property
    def _folder(self) -> Path:
        return self.plan.output / "collection"

    def _tasks(self, target: str) -> list[Task]:
        """The tasks of the plan: those that were drawn before, and new ones if some are missing."""
        file, count = self._folder / _TASKS, self.plan.amounts.tasks
        earlier_tasks = read_tasks(file) if file.exists() else []
        others = sorted({task.target for task in earlier_tasks} - {target})
        if others:
            raise DatasetError(
                f"the tasks of {self.plan.output} are for target {others[0]}, not for {target}",
                hint="Name another folder (`output=`); `chameleon dataset merge` joins them.",
            )
        if len(earlier_tasks) >= count:
            return earlier_tasks[:count]
        reader = NetworkTasks(
            folder=self._folder / "networks",
            target=target,
            interruption=self.interruption,
            say=self.say,
        )
        held_out = HeldOut(task for tasks in reader.of(self.plan.hold_out) for task in tasks)
        sampler = TaskSampler(
            observed=self._select_operators(observe_tasks(reader.of(self.plan.networks))),
            held_out=held_out,
            target=target,
            most_flop=1e9 * self.plan.amounts.most_gflop,
            seed=self.plan.amounts.seed,
            registry=self.registry,
            has_space=self._has_space,
        )
        self.say(f"drawing {count - len(earlier_tasks)} tasks")
        with self.interruption.at_once():
            tasks = sampler.draw(count, earlier_tasks)
        write_tasks(file, tasks)
        return tasks

    def _select_operators(self, rows: list[ObservedTask]) -> list[ObservedTask]:
        """The tasks whose kinds of operators the plan names."""
        kinds = {row.task.operator for row in rows}
        for unknown in sorted({*self.plan.operators} - kinds):
            raise DatasetError(
                f"no network of the plan has operator '{unknown}'"
                f"{words.did_you_mean(unknown, kinds)}",
                hint=f"Their operators are {', '.join(sorted(kinds))}.",
            )
        return [row for row in rows if row.task.operator in (self.plan.operators or kinds)]

    def _has_space(self, task: Task) -> bool:
        try:
            [space] = TaskSource(self.plan.searches[0]).spaces([task], among=True)
        except ConfigError:
            return False
        return space.size > 1

    def _run(self, number: int, start: int, count: int, device: Mapping[str, Any]) -> int:
        """Tune some tasks, and write a part with all measurements, also if the run fails."""
        name = f"run-{number:04d}"
        folder = self._folder / "runs" / name
        search = self.plan.searches[number % len(self.plan.searches)]
        tasks = {"start": start, "count": count, "trust_source": self.trust_source}
        model = {"tasks": {"file": str(self._folder / _TASKS), **tasks}}
        document = {**search.document, "model": model, "output": str(folder)}
        pipeline = from_dict(document, registry=self.registry)
        try:
            with self.display() as listener:
                run_pipeline(pipeline, listeners=[listener], interruption=self.interruption)
        finally:
            measured = self._write_part(name, folder, device)
        return measured

    def _write_part(self, name: str, folder: Path, device: Mapping[str, Any]) -> int:
        """Write the measurements of a run as a part (file), unless the part is complete already."""
        if not (folder / RunFile.RECORDS).exists():
            return 0
        part = self.plan.output / PARTS / f"{name}.parquet"
        with RecordStore.of_run(folder) as store:
            measured = store.measured
        if measured and not (part.exists() and rows_in(part) == measured):
            tasks = tasks_of_run(folder, device=device, source=self.plan.output.name)
            write_part(self.plan.output, tasks, name=name)
        return measured


@attrs.frozen(kw_only=True)
class NetworkTasks:
    """Reads the tasks of networks, each network once.

    Attributes:
        folder: keeps the tasks.
        say: called with each message about progress.
    """

    folder: Path
    target: str
    interruption: Interruption
    say: Callable[[str], None]

    def of(self, networks: Sequence[ModelChoice]) -> list[list[Task]]:
        """Read the tasks of each network, from the folder if it has them."""
        tasks_by_network, problems = [], []
        for number, network in enumerate(networks, 1):
            try:
                tasks_by_network.append(
                    self._network_tasks(network, f"{number} of {len(networks)}")
                )
            except ChameleonError as error:
                self.interruption.check()
                problems.append(f"{_describe(network)}: {error}")
        if problems:
            raise ConfigError(
                "\n".join(problems),
                hint="Take these networks out of the plan, or install what they need; those that "
                "could be read are kept.",
            )
        return tasks_by_network

    def _network_tasks(self, network: ModelChoice, number: str) -> list[Task]:
        sections = {name: attrs.asdict(value) for name, value in network.sections.items()}
        sources = [Path(name) for name in network.model.sources]
        # The dependencies of a function are unknown, so its network is read again each time.
        cacheable = all(source.is_file() for source in sources)
        facts = [network.model.to_json(), self.target, *([sections] if sections else ())]
        text = canonical([*facts, *_digests([*sources, *_paths(network.model.options)])])
        file = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if cacheable and file.exists():
            return read_tasks(file)
        self.say(f"network {number}: {_describe(network)}")
        with self.interruption.at_once():
            named = TaskSource(network).tasks(self.target)
        # The tuning of an alternative could end early, in favour of the operator in float32.
        tasks = [attrs.evolve(task, alternative_of="") for task in named]
        if cacheable:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_tasks(file, tasks)
        return tasks


def observe_tasks(networks: Sequence[Sequence[Task]]) -> list[ObservedTask]:
    """The tasks of networks, each with its share of the operators in its network."""
    return [
        ObservedTask(task=task, mass=task.weight / sum(other.weight for other in tasks))
        for tasks in networks
        for task in tasks
    ]


def _paths(options: Any) -> list[Path]:
    """The paths among the options of a model."""
    fields = attrs.fields(type(options))
    named = [getattr(options, field.name) for field in fields if field.metadata.get("path")]
    return [Path(path) for path in named if path]


def _digests(paths: Sequence[Path]) -> list[str]:
    """A digest of the content of each path that is a file."""
    digests = []
    for path in paths:
        if path.is_file():
            with path.open("rb") as stream:
                digests.append(hashlib.file_digest(stream, "blake2b").hexdigest())
    return digests


def _describe(network: ModelChoice) -> str:
    model = network.model
    fields = attrs.fields(model.record.options)
    required = [field.alias for field in fields if field.default is attrs.NOTHING]
    return " ".join([model.name, *(str(model.options_json[name]) for name in required)])
