"""Chameleon as a search strategy of MetaSchedule's ``tune_tir`` and ``tune_relax``."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.api import ResolvedPipeline, TaskSource, TaskTuner, from_dict
from chameleon_core.plugin_api import (
    Archive,
    ChameleonError,
    ConfigError,
    FailureKind,
    InvalidConfigurationError,
    Measurement,
    NoOptions,
    Task,
)
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._metaschedule.traces import applied, config_of
from chameleon_tvm._quick_tvm import Schedule, Target, tvm
from chameleon_tvm._spaces.sketch.generator import GeneratedSketches
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchPlan
from chameleon_tvm._words import telling_line

log = structlog.get_logger()

_MAX_EMPTY_BATCHES = 8
"""Number of consecutive batches without a program after which a search gives up."""


class TraceSearch:
    """Tunes one task of MetaSchedule: a tuner's configurations become MetaSchedule's schedules."""

    def __init__(self, name: str, plan: SketchPlan, tuner: TaskTuner, *, max_trials: int) -> None:
        self._name = name
        self._plan = plan
        self._tuner = tuner
        self._trials_left = max_trials
        self._pending: list[tuple[int, ...]] = []
        self._invalid: list[Measurement] = []

    def adopt(self, records: Iterable[Any]) -> int:
        """Learn a database's earlier records, and return the number of distinct configurations."""
        known: dict[tuple[int, ...], Measurement] = {}
        for record in records:
            config = config_of(self._plan, record.trace)
            if config is not None and self._tuner.space.legal(np.array([config], np.int32))[0]:
                known.setdefault(config, to_measurement(config, record.run_secs))
        self._tuner.adopt(list(known.values()))
        return len(known)

    def schedules(self) -> list[Schedule]:
        """The next batch of schedules to measure; empty if no trial or configuration is left."""
        for _ in range(_MAX_EMPTY_BATCHES):
            if not self._trials_left:
                return []
            configs = self._tuner.ask(self._trials_left).configs
            if not len(configs):
                return []
            schedules = []
            for config in (tuple(row) for row in configs.tolist()):
                try:
                    schedules.append(applied(self._plan, config))
                except InvalidConfigurationError as error:
                    self._invalid.append(
                        Measurement(config=config, failure=FailureKind.INVALID, message=str(error))
                    )
                else:
                    self._pending.append(config)
            if schedules:
                self._trials_left -= len(schedules)
                return schedules
            self.learn(())
        log.warning("no_schedulable_configuration", task=self._name, batches=_MAX_EMPTY_BATCHES)
        return []

    def learn(self, results: Sequence[Any]) -> None:
        """Let the tuner learn from the runner results of the schedules of the last batch."""
        measurements = [
            to_measurement(config, result.run_secs, problem=result.error_msg)
            for config, result in zip(self._pending, results, strict=True)
        ]
        invalid, self._pending, self._invalid = self._invalid, [], []
        self._tuner.tell([*measurements, *invalid])


def to_measurement(config: tuple[int, ...], run_secs: Any, *, problem: Any = None) -> Measurement:
    """Convert a result of MetaSchedule, with seconds of each repeat, to a measurement."""
    seconds = tuple(float(value) for value in run_secs or ())
    if problem is None and seconds and all(0.0 < value < math.inf for value in seconds):
        return Measurement(config=config, seconds=seconds)
    message = "the runner gave no time" if problem is None else str(problem).strip()
    source = message.partition("\n")[0]
    in_builder, timed_out = "Builder" in source, "Timeout" in source
    if in_builder:
        kind = FailureKind.BUILD_TIMEOUT if timed_out else FailureKind.BUILD_ERROR
    else:
        kind = FailureKind.RUN_TIMEOUT if timed_out else FailureKind.RUN_ERROR
    return Measurement(config=config, failure=kind, message=message)


@attrs.frozen(kw_only=True, eq=False)
class Workload:
    """The facts about a task that the search strategy takes from MetaSchedule's tuning context.

    A context refers to its strategy, so keeping the context would keep both in memory.

    Attributes:
        module: Module that holds the unscheduled function as ``main``.
        postprocessors: MetaSchedule's post-processors, applied to each schedule.
        seed: The context's seed, at least 0.
    """

    name: str
    module: Any
    target: Target
    postprocessors: tuple[Any, ...]
    seed: int

    @classmethod
    def of(cls, context: Any) -> Workload:
        """Read the facts about a task from MetaSchedule's ``TuneContext``.

        Raises:
            ConfigError: The context has no module, no target or no space generator.
        """
        if context.mod is None or context.target is None or context.space_generator is None:
            raise ConfigError(
                f"the tuning context of {str(context.task_name)!r} has no module, no target or no "
                "space generator",
                hint="Make it as `ms.tune_tir` does.",
            )
        return cls(
            name=str(context.task_name),
            module=context.mod,
            target=context.target,
            postprocessors=tuple(context.space_generator.postprocs or ()),
            seed=abs(int(context.rand_state)),
        )

    @cached_property
    def task(self) -> Task:
        """The workload as a Chameleon task."""
        return Task(
            name=self.name,
            operator="primfunc",
            arguments={"function": tvm.ir.save_json(self.module["main"])},
            target=canonical_target(self.target),
            flop=0.0,  # nothing reads the throughput
        )


class TracePlan(SketchPlan):
    """A ``SketchPlan`` of sketches that the space generator of a MetaSchedule user has made.

    Raises:
        ConfigError: The traces cannot be read, or the list of sketches is empty.
    """

    def __init__(
        self, work: Workload, sketches: Sequence[Schedule], options: SketchOptions
    ) -> None:
        # The constructor of SketchPlan is not called, because it generates sketches.
        if not sketches:
            raise ConfigError(
                f"the space generator made no design space for {work.name!r}",
                hint="Leave the task out, or pass another `space=` to MetaSchedule.",
            )
        generated = GeneratedSketches(
            base=Schedule(work.module), sketches=tuple(sketches), postprocessors=work.postprocessors
        )
        try:
            self._read_sketches(work.task, work.target, generated, options)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ConfigError(
                f"the traces of {work.name!r} hold instructions that make no knobs: "
                f"{telling_line(error)}",
                hint="Use one of TVM's own rule sets as `space=`, or TVM's own strategies.",
            ) from error


def canonical_target(target: Target) -> str:
    """Convert a target object of TVM to Chameleon's canonical form, a JSON string."""
    values = json.loads(str(target))
    options = {key: value for key, value in values.items() if not key.startswith("feature.")}
    return TVMTargets(NoOptions()).resolve(json.dumps(options))


Stage = str | Mapping[str, Any]
"""A stage as a pipeline file names it: its name, or a mapping with ``name`` and options."""

_HINT = "Pass it as `strategy=` to ms.tune_tir or tune_relax."

_MAX_RECORDS = 1024
"""Largest number of records of earlier tuning to learn, the fastest first."""


def strategy_pipeline(**sections: Any) -> ResolvedPipeline:
    """Resolve the search stages that a user of the strategy has named.

    Raises:
        ConfigError: A stage or an option is unknown.
    """
    stages = {key: value for key, value in sections.items() if value is not None}
    # A pipeline has to name a model and a target; here MetaSchedule brings both.
    model = {"operators": [{"primfunc": {"source": "_metaschedule:module"}}]}
    return from_dict({"model": model, "target": "native", **stages})


@contextlib.contextmanager
def _hint_in_message() -> Iterator[None]:
    """Put an error's hint into its message, because TVM's FFI passes only the message on."""
    try:
        yield
    except ChameleonError as error:
        raise RuntimeError(f"{error}. {error.hint}" if error.hint else str(error)) from error


@derived_object
class ChameleonStrategy(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """Searches MetaSchedule's traces with Chameleon's explorer, cost model, sampler, synthesizer.

    Pass an object as ``strategy=`` to ``ms.tune_tir`` or ``ms.relax_integration.tune_relax``.
    Records go to the database of that call. The strategy first learns the task's records that the
    database already has.

    Args:
        preset: Name of the preset, which provides the stages that the other arguments do not name.
        explorer: Name of the explorer, or a mapping with ``name`` and options.
        cost_model: Name of the cost model, or a mapping with ``name`` and options.
        sampler: Name of the sampler, or a mapping with ``name`` and options.
        synthesizer: Name of the synthesizer, or a mapping with ``name`` and options.
        prune: Whether the design space leaves out configurations that cannot be fast.
        archive: Archive of measurements that the tasks of one call share, for stages that learn
            across tasks.

    Raises:
        ConfigError: A stage or an option is unknown.
    """

    def __init__(
        self,
        *,
        preset: str | None = None,
        explorer: Stage | None = None,
        cost_model: Stage | None = None,
        sampler: Stage | None = None,
        synthesizer: Stage | None = None,
        seed: int | None = None,
        prune: bool = True,
        archive: Archive | None = None,
    ) -> None:
        super().__init__()
        # Without this call, the tuning context would take half a minute to import the intrinsics.
        load_tensor_intrinsics()
        self._stages: dict[str, Any] = {
            "preset": preset,
            "explorer": explorer,
            "cost_model": cost_model,
            "sampler": sampler,
            "synthesizer": synthesizer,
            "seed": seed,
        }
        self._pipeline = strategy_pipeline(**self._stages)
        self._options = SketchOptions(prune=prune, rewrite_sums=False)
        self._archive = archive or Archive()
        self._workload: Workload | None = None
        self._search: TraceSearch | None = None

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """Keep the task of the tuning context."""
        with _hint_in_message():
            self._workload = Workload.of(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Make the design space and the search stages of a task, before MetaSchedule tunes it.

        MetaSchedule's own cost model is not used.

        Raises:
            RuntimeError: The design spaces cannot be read, or a stage cannot be made.
        """
        del cost_model
        with _hint_in_message():
            self._search = self._make_search(
                int(max_trials), int(num_trials_per_iter), design_spaces, database
            )

    def _make_search(
        self, max_trials: int, batch_size: int, design_spaces: Sequence[Schedule], database: Any
    ) -> TraceSearch:
        work = self._required_workload()
        task, pipeline = work.task, self._pipeline
        if self._stages["seed"] is None:
            pipeline = attrs.evolve(pipeline, seed=work.seed)
        plan = TracePlan(work, design_spaces, self._options)
        space = plan.space
        device = TaskSource(pipeline).device(task.target)
        tuner = TaskTuner.of(
            pipeline, task, space, self._archive, batch_size=batch_size, device=device
        )
        search = TraceSearch(task.name, plan, tuner, max_trials=max_trials)
        known = 0
        if database is not None and database.has_workload(work.module):
            workload = database.commit_workload(work.module)
            known = search.adopt(database.get_top_k(workload, _MAX_RECORDS))
        log.info("design_space_made", task=task.name, knobs=len(space.knobs), records_known=known)
        return search

    def post_tuning(self) -> None:
        """Drop the search, which has ended."""
        self._search = None

    def generate_measure_candidates(self) -> list[Any] | None:
        """Return the next batch of schedules to MetaSchedule, or None if the search is over."""
        with _hint_in_message():
            schedules = self._required_search().schedules()
        return [
            ms.MeasureCandidate(
                schedule, ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
            )
            for schedule in schedules
        ] or None

    def notify_runner_results(
        self, measure_candidates: Sequence[Any], results: Sequence[Any]
    ) -> None:
        """Learn the measurements of the last batch."""
        del measure_candidates
        with _hint_in_message():
            self._required_search().learn(results)

    def clone(self) -> Any:
        """Make a strategy with the same options, for another task of the same MetaSchedule call."""
        return ChameleonStrategy(**self._stages, prune=self._options.prune, archive=self._archive)

    def _required_workload(self) -> Workload:
        if self._workload is None:
            raise ConfigError("the strategy belongs to no tuning context", hint=_HINT)
        return self._workload

    def _required_search(self) -> TraceSearch:
        if self._search is None:
            raise ConfigError(
                "the strategy was asked for candidates before `pre_tuning`", hint=_HINT
            )
        return self._search
