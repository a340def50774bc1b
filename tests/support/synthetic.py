"""Every stage without code or hardware, and whole pipelines of them, which take milliseconds.

A cost in closed form, and a runner that reads it instead of measuring. Processes that tests start
find this module as well: ``tests/conftest.py`` puts its folder on their path.
"""

import os
import random
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core import hooks
from chameleon_core import plugin_api as stages
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._pipeline.load import from_dict
from chameleon_core._task import Task
from chameleon_core.api import RecordStore, Registry
from chameleon_core.plugin_api import NoOptions, PluginRecord, StageContext, Visited, hookimpl
from chameleon_testing._conformance_cases import SyntheticSpace

BASELINE_SECONDS = 4e-3
"""Time of the synthetic baseline; the optimum of every synthetic task takes 1e-3 seconds."""


def synthetic_task(
    cardinalities: Sequence[int], name: str = "op", *, failing: int = 0, target: str = "nowhere"
) -> Task:
    """A task with a knob for each of the cardinalities, of whose configurations some fail."""
    arguments = {"cardinalities": list(cardinalities), "failing": failing}
    return Task(name=name, operator="synthetic", arguments=arguments, target=target, flop=1e9)


def synthetic_cost(task: Task, config: Sequence[int]) -> float:
    """Seconds of a configuration: a bowl whose minimum of 1e-3 lies inside the space."""
    cards = np.array(task.arguments["cardinalities"], float)
    best = np.floor(cards * 0.6)
    return float(1e-3 * (1 + 9 * np.mean(((np.asarray(config) - best) / cards) ** 2)))


def synthetic_failure(task: Task, config: Sequence[int]) -> FailureKind | None:
    """Which failure a configuration has, or None; ``arguments["failing"]`` percent have one."""
    draw = zlib.crc32(repr(tuple(config)).encode())
    kinds = list(FailureKind)
    failing = draw % 100 < task.arguments.get("failing", 0)
    return kinds[draw // 100 % len(kinds)] if failing else None


@attrs.frozen(kw_only=True)
class ModelOptions:
    """Options of the synthetic frontend.

    Attributes:
        operators: for each task the cardinalities of its knobs.
        failing: percent of the configurations that fail.
    """

    operators: tuple[tuple[int, ...], ...]
    failing: int = 0


class SyntheticFrontend(stages.Frontend):
    """One task per list of cardinalities."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options

    def tasks(self, target: str) -> list[Task]:
        return [
            synthetic_task(cards, f"op{index}", failing=self._options.failing, target=target)
            for index, cards in enumerate(self._options.operators)
        ]


class SyntheticNetwork(SyntheticFrontend):
    """Delivers a network, timed; ``more`` is said of it, too."""

    more: ClassVar = {}

    def deliver(self, delivery: stages.Delivery) -> dict[str, Any]:
        delivery.folder.mkdir()
        times = {"latency_seconds": 0.008, "untuned_seconds": 1.8, "rivals": {"torch": 0.016}}
        return {**times, "max_relative_error": 1e-6, "folder": str(delivery.folder), **self.more}


class SyntheticBaseline(stages.Baseline):
    """Always takes ``BASELINE_SECONDS``, in both of its variants."""

    def __init__(self, _options: NoOptions) -> None:
        pass

    def supports(self, task: Task) -> bool:
        return task.operator == "synthetic"

    def variants(self, task: Task) -> Sequence[str]:
        return ("plain", "packed")

    def builder(self, task: Task, variant: str, *, threads: int) -> stages.Builder:
        raise NotImplementedError("synthetic baselines are never built")


class SyntheticUntuned(SyntheticBaseline):
    """The same as what an untuned kernel would be."""

    vendor: ClassVar[bool] = False


@attrs.frozen(kw_only=True)
class RunnerOptions:
    """Options of the synthetic runner.

    Attributes:
        delay: seconds a measurement takes.
        log: a file that gets one line per measurement begun and one per comparison.
        hold: an existing file makes the runner wait before a measurement until it is gone.
    """

    delay: float = 0.0
    log: str = ""
    hold: str = ""


class SyntheticRunner(stages.Runner):
    """Looks the cost up instead of measuring; yields a batch in a random order."""

    def __init__(self, options: RunnerOptions) -> None:
        self._options = options
        self._plan = stages.ComparisonPlan()
        self._stopped = False
        self._order = random.Random()

    def measure(self, job: stages.MeasureJob) -> Iterator[Measurement]:
        configs = list(job.configs)
        self._order.shuffle(configs)
        for config in configs:
            while self._options.hold and Path(self._options.hold).exists():
                time.sleep(0.001)
            if self._stopped:
                return
            self._log(f"{job.task.name} {config}")
            time.sleep(self._options.delay)
            yield self._outcome(job.task, config)

    def plan_comparison(self, plan: stages.ComparisonPlan) -> None:
        self._plan = plan

    def compare(self, task: Task, contenders: Sequence[stages.Contender]) -> list[Measurement]:
        self._log(f"{task.name} compare")
        self._plan.tell("timed", len(contenders), len(contenders))
        baseline = Measurement(config=(), seconds=(BASELINE_SECONDS,))
        configs = [contender.config for contender in contenders]
        return [self._outcome(task, config) if config else baseline for config in configs]

    def describe(self) -> dict[str, Any]:
        return {"device": "synthetic"}

    def conditions(self) -> dict[str, Any]:
        return {"threads": 1}

    def interrupt(self) -> None:
        self._stopped = True

    @staticmethod
    def _outcome(task: Task, config: tuple[int, ...]) -> Measurement:
        failure = synthetic_failure(task, config)
        if failure is not None:
            return Measurement(config=config, failure=failure, message="as scripted")
        seconds = (synthetic_cost(task, config),)
        return Measurement(config=config, seconds=seconds, build_seconds=1e-4)

    def _log(self, line: str) -> None:
        if self._options.log:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            file = os.open(self._options.log, flags, 0o644)
            try:
                os.write(file, f"{line}\n".encode())
            finally:
                os.close(file)


class SyntheticReplay(SyntheticRunner):
    """The same in the batch's order and knowing the optimum, as a recorded table would."""

    measures_hardware: ClassVar[bool] = False

    def __init__(self, options: RunnerOptions) -> None:
        super().__init__(options)
        self._elapsed = 0.0

    def now(self) -> float:
        """Real time and a millisecond of recorded time for every measurement, in seconds."""
        return time.perf_counter() + self._elapsed

    def measure(self, job: stages.MeasureJob) -> Iterator[Measurement]:
        for config in job.configs:
            if self._stopped:
                return
            self._log(f"{job.task.name} {config}")
            self._elapsed += 1e-3
            yield self._outcome(job.task, config)

    def best_known(self, task: Task) -> float | None:
        """The cost at the bottom of the bowl."""
        cards = np.array(task.arguments["cardinalities"], float)
        return synthetic_cost(task, np.floor(cards * 0.6).astype(int).tolist())


class SyntheticRival(stages.Rival):
    """Finds the optimum in two points, a second each."""

    def __init__(self, _options: NoOptions) -> None:
        pass

    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> stages.Rival.Trace:
        return stages.Rival.Trace(
            at_seconds=(1.0, 2.0),
            measurements=(1, measurements or 1),
            best_seconds=(BASELINE_SECONDS, 1e-3),
            final_seconds=1e-3,
            details={"seed": seed, "task": task.name},
        )


class SyntheticExplorer(stages.Explorer):
    """Mutates the best configurations seen: a state and a generator that a replay must rebuild."""

    def __init__(self, _options: NoOptions, context: StageContext) -> None:
        self._space, self._rng = context.space, context.rng
        self._best: stages.Configs = np.empty((0, len(context.space.knobs)), np.int32)

    def explore(
        self, score: stages.Explorer.ScoreFunction | None, visited: Visited, count: int
    ) -> stages.Candidates:
        parents = np.repeat(self._best, 8, axis=0)
        pool = np.concatenate(
            [self._space.mutate(parents, self._rng), self._space.sample(count, self._rng)]
        )
        pool = self._space.distinct(pool)
        pool = pool[visited.unvisited(pool)]
        scores = np.zeros(len(pool)) if score is None else score(pool)
        order = np.argsort(-scores, kind="stable")[:count]
        return stages.Candidates(configs=pool[order], scores=scores[order], steps=1)

    def observe(self, observations: stages.Observations) -> None:
        self._best = observations.configs[np.argsort(observations.costs, kind="stable")[:4]]


class SyntheticCostModel(stages.CostModel):
    """The quality of the nearest measured configuration."""

    def __init__(self, _options: NoOptions, context: StageContext) -> None:
        self._space = context.space
        self._seen: stages.Observations | None = None

    def fit(self, observations: stages.Observations) -> None:
        self._seen = observations

    @property
    def trained(self) -> bool:
        return self._seen is not None

    def predict(self, configs: stages.Configs) -> stages.Scores:
        assert self._seen is not None  # the loop asks `trained` first
        distance = np.abs(configs[:, None, :] - self._seen.configs[None]).sum(axis=2)
        nearest: stages.Scores = self._seen.relative_throughput[distance.argmin(axis=1)]
        return nearest


class SyntheticSampler(stages.Sampler):
    """The first candidates."""

    def __init__(self, _options: NoOptions, _context: StageContext) -> None:
        pass

    def select(self, candidates: stages.Candidates, visited: Visited, count: int) -> stages.Configs:
        return candidates.configs[:count]


class SyntheticSynthesizer(stages.Synthesizer):
    """Leaves the batch as it is."""

    def __init__(self, _options: NoOptions, _context: StageContext) -> None:
        pass

    def refine(
        self, batch: stages.Configs, candidates: stages.Candidates, visited: Visited
    ) -> stages.Configs:
        return batch


_NAME = "synthetic"


def record_of(
    factory: type,
    options: type = NoOptions,
    *,
    name: str = "",
    kind: type[PluginRecord] = PluginRecord,
    **more: Any,
) -> PluginRecord:
    """The record of a stage.

    Args:
        factory: the stage's class; its docstring is the summary.
        options: the class of its options.
        name: the stage's name; the class's in lower case if it is empty.
        kind: the class of the record.
        more: further fields of the record.
    """
    return kind(
        name=name or factory.__name__.lower(),
        summary=(factory.__doc__ or factory.__name__).partition("\n")[0],
        options=options,
        factory=f"{factory.__module__}:{factory.__qualname__}",
        **more,
    )


def plugin_of(**hooks: object) -> object:
    """A plugin whose hooks return these records, or raise these errors, by the names of kinds."""

    def hook_of(returned: object) -> Callable[[object], object]:
        @hookimpl
        def hook(self: object) -> object:
            del self
            if isinstance(returned, BaseException):
                raise returned
            return returned

        return hook

    named = {f"chameleon_{kind}": hook_of(returned) for kind, returned in hooks.items()}
    return type("Plugin", (), named)()


_synthetic = partial(record_of, name=_NAME)


SYNTHETIC = plugin_of(
    frontends=[_synthetic(SyntheticFrontend, ModelOptions)],
    spaces=[_synthetic(SyntheticSpace)],
    explorers=[_synthetic(SyntheticExplorer)],
    cost_models=[_synthetic(SyntheticCostModel)],
    samplers=[_synthetic(SyntheticSampler)],
    synthesizers=[_synthetic(SyntheticSynthesizer)],
    runners=[
        _synthetic(SyntheticRunner, RunnerOptions),
        record_of(SyntheticReplay, RunnerOptions, name="synthetic-replay"),
    ],
    rivals=[_synthetic(SyntheticRival)],
    baselines=[
        _synthetic(SyntheticBaseline),
        record_of(SyntheticUntuned, name="synthetic-untuned"),
    ],
)
"""A plugin that registers every synthetic stage."""


def synthetic_document(
    output: Path | str,
    *,
    operators: Sequence[Sequence[int]] = ((7, 9), (5, 5, 5)),
    failing: int = 0,
    runner: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A pipeline file's content that names the synthetic stages.

    Args:
        output: the run folder.
        operators: for each task the cardinalities of its knobs.
        failing: percent of the configurations that fail.
        runner: options of the synthetic runner.
        more: further keys, or others in place of the synthetic ones.
    """
    keys = ("space", "explorer", "cost_model", "sampler", "synthesizer")
    return {
        "model": {"synthetic": {"operators": [list(o) for o in operators], "failing": failing}},
        "target": "nowhere",
        **dict.fromkeys(keys, _NAME),
        "runner": {"name": _NAME, **(runner or {})},
        "scheduler": "round-robin",
        "baselines": ["synthetic", "synthetic-untuned"],
        "budget": {"measurements": 20, "batch_size": 4},
        "output": str(output),
        **more,
    }


def synthetic_registry(*plugins: object) -> Registry:
    """Core's own plugins, the synthetic ones, and more; nothing else that is installed."""
    return Registry.from_plugins([*plugins, hooks, SYNTHETIC])


def run_synthetic(document: Mapping[str, Any], *plugins: object, fresh: bool = False) -> RunResult:
    """Run a document of ``synthetic_document`` in this process, with these plugins, too."""
    return run_pipeline(from_dict(document, registry=synthetic_registry(*plugins)), fresh=fresh)


def measurements_in(folder: Path) -> dict[str, list[Measurement]]:
    """The measurements in a run folder, by the names of its tasks."""
    with RecordStore.of_run(folder) as store:
        return {stored.task.name: store.measurements(stored.id) for stored in store.tasks()}


def everything(folder: Path) -> dict[str, list[Measurement]]:
    """All measurements of a run in a folder, by task."""
    return {name: sorted(each, key=str) for name, each in measurements_in(folder / "run").items()}
