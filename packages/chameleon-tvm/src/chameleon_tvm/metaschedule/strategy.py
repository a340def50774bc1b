"""Chameleon as a search strategy of MetaSchedule's ``tune_tir`` and ``tune_relax``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import structlog
from chameleon_core.errors import ChameleonError, ConfigError
from chameleon_core.loop.round.stages import SearchStages, generator
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.loop.start.tasks import device_of
from chameleon_core.pipeline import from_dict
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.stages import Archive
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from chameleon_tvm.instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm.metaschedule.plan import TracePlan, Workload
from chameleon_tvm.metaschedule.search import TraceSearch
from chameleon_tvm.quick_tvm import Schedule
from chameleon_tvm.spaces.sketch.options import SketchOptions

log = structlog.get_logger()

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
    given = {key: value for key, value in sections.items() if value is not None}
    # A pipeline has to name a model and a target; here MetaSchedule brings both.
    model = {"operators": [{"primfunc": {"source": "metaschedule:module"}}]}
    return from_dict({"model": model, "target": "native", **given})


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
        """The next batch of schedules, or None where the search is over."""
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
