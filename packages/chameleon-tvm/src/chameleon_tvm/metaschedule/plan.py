"""MetaSchedule's design spaces as one design space of named knobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs
from chameleon_core.errors import ConfigError
from chameleon_core.plugins import NoOptions
from chameleon_core.task import Task

from chameleon_tvm.device.targets import TVMTargets, target_info
from chameleon_tvm.quick_tvm import Schedule, Target, tvm
from chameleon_tvm.spaces.sketch.constraints import with_whole_vectors
from chameleon_tvm.spaces.sketch.generator import GeneratedSketches, first_line
from chameleon_tvm.spaces.sketch.model import NestModel
from chameleon_tvm.spaces.sketch.options import SketchOptions
from chameleon_tvm.spaces.sketch.plan import merge
from chameleon_tvm.spaces.sketch.provider import SketchPlan
from chameleon_tvm.spaces.sketch.replay import replay


@attrs.frozen(kw_only=True, eq=False)
class Workload:
    """What a tuning context of MetaSchedule says of its task.

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
    """What ``SketchPlan`` is, of sketches that a space generator of the user's has made.

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
        self._name = work.name
        self._options = options
        self._target = work.target
        self.generated = GeneratedSketches(
            base=Schedule(work.module),
            sketches=tuple(sketches),
            postprocessors=work.postprocessors,
        )
        try:
            replayed = [replay(self.generated.base, sketch) for sketch in sketches]
            self._knobs, self.decisions = merge(
                [samples for samples, _ in replayed], max_choices=options.max_choices
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ConfigError(
                f"the traces of {work.name!r} hold instructions that make no knobs: "
                f"{first_line(error)}",
                hint="Use one of TVM's own rule sets as `space=`, or TVM's own strategies.",
            ) from error
        self.nests = [nest for _, nest in replayed]
        self.models: list[NestModel | None] = [None] * len(self.nests)
        if self._target.kind.name == "llvm":
            info = target_info(work.task.target)
            self.models = [
                None if nest is None else NestModel(nest=nest, info=info) for nest in self.nests
            ]
        if options.prune:
            self._knobs = with_whole_vectors(self._knobs, self.models)


def canonical_target(target: Target) -> str:
    """A target of TVM's in the form that ``TVMTargets`` gives it."""
    described = json.loads(str(target))
    kept = {key: value for key, value in described.items() if not key.startswith("feature.")}
    return TVMTargets(NoOptions()).resolve(json.dumps(kept))
