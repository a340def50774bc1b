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
from chameleon_core.api import ResolvedPipeline, TaskTuner, device_of, from_dict
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

_FRUITLESS = 8
"""Number of consecutive batches without a program after which a search gives up."""


class TraceSearch:
    """Tunes one task of MetaSchedule: a tuner's configurations become MetaSchedule's schedules.

    Args:
        max_trials: Largest number of schedules to return in total.
    """

    def __init__(self, name: str, plan: SketchPlan, tuner: TaskTuner, *, max_trials: int) -> None:
        self._name = name
        self._plan = plan
        self._tuner = tuner
        self._left = max_trials
        self._waiting: list[tuple[int, ...]] = []
        self._refused: list[Measurement] = []

    def adopt(self, records: Iterable[Any]) -> int:
        """Learn the measurements of this task that a MetaSchedule database has from earlier tuning.

        Returns:
            Number of distinct configurations of this design space among the records.
        """
        known: dict[tuple[int, ...], Measurement] = {}
        for record in records:
            config = config_of(self._plan, record.trace)
            if config is not None and self._tuner.space.legal(np.array([config], np.int32))[0]:
                known.setdefault(config, measured(config, record.run_secs))
        self._tuner.adopt(list(known.values()))
        return len(known)

    def schedules(self) -> list[Schedule]:
        """The next batch of schedules to measure.

        It is empty if the limit of trials is reached, or if no configuration is left.
        """
        for _ in range(_FRUITLESS):
            if not self._left:
                return []
            asked = self._tuner.ask(self._left)
            if not len(asked):
                return []
            schedules = []
            for config in (tuple(row) for row in asked.tolist()):
                try:
                    schedules.append(applied(self._plan, config))
                except InvalidConfigurationError as error:
                    self._refused.append(
                        Measurement(config=config, failure=FailureKind.INVALID, message=str(error))
                    )
                else:
                    self._waiting.append(config)
            if schedules:
                self._left -= len(schedules)
                return schedules
            self.learn(())
        log.warning("no_schedulable_configuration", task=self._name, batches=_FRUITLESS)
        return []

    def learn(self, results: Sequence[Any]) -> None:
        """Let the tuner learn how fast the schedules of the last batch were.

        Args:
            results: MetaSchedule's runner results, in the order of ``schedules``.
        """
        outcomes = [
            measured(config, result.run_secs, problem=result.error_msg)
            for config, result in zip(self._waiting, results, strict=True)
        ]
        refused, self._waiting, self._refused = self._refused, [], []
        self._tuner.tell([*outcomes, *refused])


def measured(config: tuple[int, ...], run_secs: Any, *, problem: Any = None) -> Measurement:
    """Convert a result of MetaSchedule's builder and runner to a measurement.

    Args:
        run_secs: Seconds of each repeat, or None.
        problem: The error message of the builder or runner, or None.
    """
    seconds = tuple(float(value) for value in run_secs or ())
    if problem is None and seconds and all(0.0 < value < math.inf for value in seconds):
        return Measurement(config=config, seconds=seconds)
    message = "the runner gave no time" if problem is None else str(problem).strip()
    who = message.partition("\n")[0]
    building, late = "Builder" in who, "Timeout" in who
    if building:
        kind = FailureKind.BUILD_TIMEOUT if late else FailureKind.BUILD_ERROR
    else:
        kind = FailureKind.RUN_TIMEOUT if late else FailureKind.RUN_ERROR
    return Measurement(config=config, failure=kind, message=message)


@attrs.frozen(kw_only=True, eq=False)
class Workload:
    """The facts about a task that the search strategy takes from MetaSchedule's tuning context.

    The strategy keeps this object instead of the context. A context refers to its strategy, so a
    reference back to the context would keep both in memory.

    Attributes:
        name: Name of the task.
        module: Module that holds the unscheduled function as ``main``.
        target: Target to tune for.
        postprocessors: MetaSchedule's post-processors, which are applied to each schedule whose
            decisions are made.
        seed: The context's seed, at least 0.
    """

    name: str
    module: Any
    target: Target
    postprocessors: tuple[Any, ...]
    seed: int

    @classmethod
    def of(cls, context: Any) -> Workload:
        """Read the facts about a task from MetaSchedule's tuning context.

        Args:
            context: The ``TuneContext``.

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
            flop=0.0,  # throughput is asked for nowhere
        )


class TracePlan(SketchPlan):
    """A ``SketchPlan`` of sketches that the space generator of a MetaSchedule user has made.

    Args:
        options: Options of the space ``sketch``. ``rules``, ``seed`` and the rewriting options have
            no effect, because the sketches exist already and MetaSchedule builds the kernels.

    Raises:
        ConfigError: The traces cannot be read, or the list of sketches is empty.
    """

    def __init__(
        self, work: Workload, sketches: Sequence[Schedule], options: SketchOptions
    ) -> None:
        # Not SketchPlan's own way to start, which generates the sketches.
        if not sketches:
            raise ConfigError(
                f"the space generator made no design space for {work.name!r}",
                hint="Leave the task out, or pass another `space=` to MetaSchedule.",
            )
        generated = GeneratedSketches(
            base=Schedule(work.module), sketches=tuple(sketches), postprocessors=work.postprocessors
        )
        try:
            self._read(work.task, work.target, generated, options)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ConfigError(
                f"the traces of {work.name!r} hold instructions that make no knobs: "
                f"{telling_line(error)}",
                hint="Use one of TVM's own rule sets as `space=`, or TVM's own strategies.",
            ) from error


def canonical_target(target: Target) -> str:
    """Convert a target object of TVM to Chameleon's canonical form, a JSON string."""
    described = json.loads(str(target))
    options = {key: value for key, value in described.items() if not key.startswith("feature.")}
    return TVMTargets(NoOptions()).resolve(json.dumps(options))


Stage = str | Mapping[str, Any]
"""A stage as a pipeline file names it: its name, or a mapping with ``name`` and options."""

_HINT = "Pass it as `strategy=` to ms.tune_tir or tune_relax."

_KNOWN = 1024
"""Largest number of records of earlier tuning to learn, the fastest first."""


def strategy_pipeline(**sections: Any) -> ResolvedPipeline:
    """Resolve the search stages that a user of the strategy has named.

    Args:
        sections: ``preset``, ``explorer``, ``cost_model``, ``sampler``, ``synthesizer``. The preset
            decides the stages that are None.

    Raises:
        ConfigError: A stage or an option is unknown.
    """
    chosen = {key: value for key, value in sections.items() if value is not None}
    # A pipeline has to name a model and a target; here MetaSchedule brings both.
    model = {"operators": [{"primfunc": {"source": "_metaschedule:module"}}]}
    return from_dict({"model": model, "target": "native", **chosen})


@contextlib.contextmanager
def _told() -> Iterator[None]:
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
        # The tuning context imports them next, which without this takes half a minute.
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
        with _told():
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
        with _told():
            self._search = self._made(
                int(max_trials), int(num_trials_per_iter), design_spaces, database
            )

    def _made(
        self, max_trials: int, batch_size: int, design_spaces: Sequence[Schedule], database: Any
    ) -> TraceSearch:
        work = self._required_workload()
        task, pipeline = work.task, self._pipeline
        if self._stages["seed"] is None:
            pipeline = attrs.evolve(pipeline, seed=work.seed)
        plan = TracePlan(work, design_spaces, self._options)
        space = plan.space
        device = device_of(pipeline, task.target)
        tuner = TaskTuner.of(
            pipeline, task, space, self._archive, batch_size=batch_size, device=device
        )
        search = TraceSearch(task.name, plan, tuner, max_trials=max_trials)
        known = 0
        if database is not None and database.has_workload(work.module):
            workload = database.commit_workload(work.module)
            known = search.adopt(database.get_top_k(workload, _KNOWN))
        log.info("design_space", task=task.name, knobs=len(space.knobs), records_known=known)
        return search

    def post_tuning(self) -> None:
        """Drop the search, which has ended."""
        self._search = None

    def generate_measure_candidates(self) -> list[Any] | None:
        """Return the next batch of schedules to MetaSchedule, or None if the search is over."""
        with _told():
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
        with _told():
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
