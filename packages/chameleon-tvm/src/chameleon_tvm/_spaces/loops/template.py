"""The design space of a network's functions that are plain loops, such as a softmax."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from chameleon_core.plugin_api import Builder, Choice, ConfigError, DesignSpace, Task, fall_back

from chameleon_tvm._device.targets import target_info
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.loops.lowering import loops_of
from chameleon_tvm._spaces.loops.partial_sums import REFUSED
from chameleon_tvm._spaces.loops.schedule import LoopPlan, default_plan, scheduled
from chameleon_tvm._spaces.template.base import Template, TemplateBuilder
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._words import telling_line

KIND = "loops"
"""The kind (``Task.operator``) of tasks that are functions of loops in a network."""

_OPTIONS: dict[str, tuple[Any, ...]] = {
    "rows": ("together", "apart"),
    "threads": ("all", "one"),
    "block": (32, 1, 16, 64),
    "columns": (8, 1, 2, 4),
}


def plan_of(builder: Builder, config: Sequence[int]) -> LoopPlan | None:
    """Convert a configuration of a task of kind ``loops`` to the schedule that it stands for.

    Args:
        builder: The builder of the task's kernels.
        config: The knob indices of the configuration.

    Returns:
        The schedule; None if the builder is one of another space.
    """
    if isinstance(builder, TemplateBuilder) and isinstance(builder.template, LoopTemplate):
        return _plan(builder.space.decode(config))
    return None


class LoopTemplate(Template):
    """The template of a network's fused function that has no matrix product, such as a softmax."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options  # there is one algorithm
        self.task = task
        self._lanes = target_info(task.target).lanes("float32")
        self._function = operator_of(task).prim_func()
        try:
            self._default = default_plan(self._function)
            scheduled(self._function, self._default, self._lanes)
        except Exception as error:
            if not isinstance(error, REFUSED):
                fall_back("function_not_scheduled_as_loops", error, task=task.name)
            raise ConfigError(
                f"the function of task {task.name!r} cannot be scheduled as loops: "
                f"{telling_line(error)}",
                hint="Use `space: sketch` for it.",
            ) from error

    def space(self) -> DesignSpace:
        knobs = [Choice(name=name, options=options) for name, options in _OPTIONS.items()]
        bare = DesignSpace(knobs)
        configs = np.array(
            list(itertools.product(*(range(k.cardinality) for k in knobs))), np.int32
        )
        is_default = [_plan(bare.decode(config)) == self._default for config in configs.tolist()]
        # The default comes first, then the configurations that differ least from it.
        [first] = configs[np.array(is_default)]
        order = np.argsort((configs != first).sum(axis=1), kind="stable")
        return DesignSpace(knobs, first_guesses=configs[order])

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return loops_of(scheduled(self._function, _plan(values), self._lanes))


def _plan(values: Mapping[str, Any]) -> LoopPlan:
    return LoopPlan(
        rows=values["rows"] == "together",
        threads=values["threads"] == "all",
        block=int(values["block"]),
        columns=int(values["columns"]),
    )
