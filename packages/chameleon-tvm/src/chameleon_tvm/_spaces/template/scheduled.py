"""The base class of templates that use TVM's schedule primitives, such as ``split``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from chameleon_core.plugin_api import Arrays, Task

from chameleon_tvm._late_tvm import Schedule, tirx
from chameleon_tvm._operators.base import Operator, operator_of
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm._spaces.template.options import TemplateOptions


class ScheduledTemplate(Template):
    """Schedules ``Operator.prim_func``. Subclasses define the knobs and the effect of each.

    Args:
        task: The task of the operator.

    Attributes:
        task: The task of the operator.
        operator: The task's operator. Constants stay in the layouts that its function takes.
    """

    plain_loops: ClassVar[bool] = False

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options  # they choose between algorithms
        self.task = task
        self.operator: Operator = operator_of(task)

    @abstractmethod
    def apply(self, schedule: Schedule, values: Mapping[str, Any]) -> None:
        """Schedule the operator's function in place.

        Args:
            schedule: The schedule of the operator's function.
            values: The knob values of a legal configuration, by name.

        Raises:
            InvalidConfigurationError: The configuration has no program.
        """

    @cached_property
    def _unscheduled(self) -> tirx.PrimFunc:
        return self.operator.prim_func()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        schedule = Schedule(self._unscheduled)
        self.apply(schedule, values)
        return schedule.mod["main"]

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # one order serves all
        places = sorted(self.operator.constants)
        return [
            self.operator.arranged(index, array)
            for index, array in zip(places, constants, strict=True)
        ]
