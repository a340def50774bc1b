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
from chameleon_core.errors import ChameleonError, ConfigError, InvalidConfigurationError
from chameleon_core.loop.round.stages import SearchStages, generator
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.loop.start.tasks import device_of
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Archive
from chameleon_core.task import Task
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from chameleon_tvm.device.targets import TVMTargets
from chameleon_tvm.instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm.metaschedule.traces import applied, config_of
from chameleon_tvm.quick_tvm import Schedule, Target, tvm
from chameleon_tvm.spaces.sketch.generator import GeneratedSketches
from chameleon_tvm.spaces.sketch.options import SketchOptions
from chameleon_tvm.spaces.sketch.provider import SketchPlan
from chameleon_tvm.words import telling_line

log = structlog.get_logger()

_FRUITLESS = 8
"""Batches in a row without a program, after which a search is given up."""


class TraceSearch:
    """Asks a tuner for configurations and hands them out as schedules.

    Args:
        name: the task's, for the log.
        plan: the task's design spaces.
        tuner: proposes and learns.
        max_trials: schedules handed out at most.
    """

    def __init__(self, name: str, plan: SketchPlan, tuner: TaskTuner, *, max_trials: int) -> None:
        self._name = name
        self._plan = plan
        self._tuner = tuner
        self._left = max_trials
        self._waiting: list[tuple[int, ...]] = []
        self._refused: list[Measurement] = []

    def adopt(self, records: Iterable[Any]) -> int:
        """Learn what a database knows of this task from earlier tuning.

        Args:
            records: MetaSchedule's tuning records.

        Returns:
            How many of them are of this design space.
        """
        known: dict[tuple[int, ...], Measurement] = {}
        for record in records:
            config = config_of(self._plan, record.trace)
            if config is not None and self._tuner.space.legal(np.array([config], np.int32))[0]:
                known.setdefault(config, measured(config, record.run_secs))
        self._tuner.adopt(list(known.values()))
        return len(known)

    def schedules(self) -> list[Schedule]:
        """The next batch; empty if the trials are spent or nothing is left to try."""
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
        """Learn a batch's outcomes.

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
    """The answers of MetaSchedule's builder and runner about a configuration, as a measurement.

    Args:
        config: knob indices.
        run_secs: seconds of each repeat, or None.
        problem: its builder's or runner's error message, or None.
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
    """The task of a tuning context of MetaSchedule.

    It takes the context's place, which holds the strategy that asks: neither would ever be freed.

    Attributes:
        name: the task's.
        module: with the unscheduled function as ``main``.
        target: what to tune for.
        postprocessors: applied to a schedule whose decisions are made.
        seed: the context's own, at least 0.
    """

    name: str
    module: Any
    target: Target
    postprocessors: tuple[Any, ...]
    seed: int

    @classmethod
    def of(cls, context: Any) -> Workload:
        """The work of a context.

        Raises:
            ConfigError: it has no module, no target or no space generator.
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
        """The same as a task of ours."""
        return Task(
            name=self.name,
            operator="primfunc",
            arguments={"function": tvm.ir.save_json(self.module["main"])},
            target=canonical_target(self.target),
            flop=0.0,  # throughput is asked for nowhere
        )


class TracePlan(SketchPlan):
    """The ``SketchPlan`` of sketches that the user's own space generator has made.

    Args:
        work: what the sketches belong to.
        sketches: MetaSchedule's design spaces.
        options: ``rules``, ``seed`` and the rewriting options are not read: generating is done,
            and MetaSchedule builds by itself.

    Raises:
        ConfigError: the traces cannot be read, or there is none.
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
    """A target of TVM's in the form that ``TVMTargets`` gives it."""
    described = json.loads(str(target))
    options = {key: value for key, value in described.items() if not key.startswith("feature.")}
    return TVMTargets(NoOptions()).resolve(json.dumps(options))


Stage = str | Mapping[str, Any]
"""A stage as a pipeline file names it: its name, or a mapping with ``name`` and options."""

_HINT = "Pass it as `strategy=` to ms.tune_tir or tune_relax."

_KNOWN = 1024
"""Records of earlier tuning that are learnt, the fastest first."""


def strategy_pipeline(**sections: Any) -> ResolvedPipeline:
    """The search stages that a pipeline file with these sections would have.

    Args:
        sections: ``preset``, ``explorer``, ``cost_model``, ``sampler``, ``synthesizer``; those
            that are None are left to the preset.

    Raises:
        ConfigError: a stage is unknown, or an option is.
    """
    chosen = {key: value for key, value in sections.items() if value is not None}
    # A pipeline has to name a model and a target; here MetaSchedule brings both.
    model = {"operators": [{"primfunc": {"source": "metaschedule:module"}}]}
    return from_dict({"model": model, "target": "native", **chosen})


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Put an error's hint into its message, the only part that comes through TVM's FFI."""
    try:
        yield
    except ChameleonError as error:
        raise RuntimeError(f"{error}. {error.hint}" if error.hint else str(error)) from error


@derived_object
class ChameleonStrategy(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """Explorer, cost model, sampler and synthesizer of this package on MetaSchedule's traces.

    Pass it as ``strategy=`` to ``ms.tune_tir`` or ``ms.relax_integration.tune_relax``. Records
    go to the database of the call; what it holds of a task already is learnt first.

    Args:
        preset: the stages that are not named below, as in a pipeline file.
        explorer: a name, or a mapping with ``name`` and options.
        cost_model: the same.
        sampler: the same.
        synthesizer: the same.
        seed: of all stages; None takes it from MetaSchedule's own.
        prune: whether points that cannot be fast are left out of the design space.
        archive: shared by the tasks of one call, for stages that learn across tasks.

    Raises:
        ConfigError: a stage is unknown, or an option is.
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
        """Remember what is to be tuned."""
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
        """Make the design space and the stages of the task.

        MetaSchedule's own cost model is not used.

        Raises:
            RuntimeError: the design spaces cannot be read, or a stage cannot be made.
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
        stages = SearchStages.of(
            pipeline,
            task,
            space,
            self._archive,
            batch_size=batch_size,
            device=device_of(pipeline, task.target),
        )
        tuner = TaskTuner(
            space,
            stages,
            rng=generator(pipeline.seed, task.key, "tuner"),
            batch_size=batch_size,
            plan_size=pipeline.budget.plan_size,
        )
        search = TraceSearch(task.name, plan, tuner, max_trials=max_trials)
        known = 0
        if database is not None and database.has_workload(work.module):
            workload = database.commit_workload(work.module)
            known = search.adopt(database.get_top_k(workload, _KNOWN))
        log.info("design_space", task=task.name, knobs=len(space.knobs), records_known=known)
        return search

    def post_tuning(self) -> None:
        """Forget the search."""
        self._search = None

    def generate_measure_candidates(self) -> list[Any] | None:
        """The next batch of schedules, or None if the search is over."""
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
        """Learn from the batch's measurements."""
        del measure_candidates
        with _told():
            self._required_search().learn(results)

    def clone(self) -> Any:
        """Another one with the same options, for another task of the same call."""
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
