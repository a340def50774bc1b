"""The base classes of templates, and the builder of their configurations' programs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from chameleon_core.plugin_api import Arrays, DesignSpace, InvalidConfigurationError, Task

from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._building.kernel import Program
from chameleon_tvm._late_tvm import Schedule, tirx
from chameleon_tvm._open_axes import current_axes
from chameleon_tvm._operators.base import Operator, operator_of
from chameleon_tvm._spaces.template.options import (
    ALGORITHM,
    DIRECT,
    ROUNDING_RANKS,
    TemplateOptions,
)
from chameleon_tvm._types import MOST_ELEMENTS


class Template(ABC):
    """A hand-written way to compute an operator, with its open choices as knobs.

    Args:
        task: The task of the operator.

    Raises:
        ConfigError: The template does not support the task; the hint names a space that does.
    """

    plain_loops: ClassVar[bool] = True
    """Whether functions are loops over arrays, without TVM's blocks (see :class:`.Program`)."""

    _latest: tuple[Any, tirx.PrimFunc] | None = None

    @abstractmethod
    def __init__(self, task: Task, options: TemplateOptions) -> None: ...

    @abstractmethod
    def space(self) -> DesignSpace:
        """The design space: knobs, constraints, features and first guesses."""

    @cached_property
    def design_space(self) -> DesignSpace:
        """The result of the first call of ``space``."""
        return self.space()

    @abstractmethod
    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        """The TensorIR function of a legal configuration.

        Its parameters are the operator's inputs, then the output, in the operator's physical
        shapes. Only constant inputs have packed shapes.
        """

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        """Convert logical constants (weights, [bias]) to the form that ``function`` takes.

        A delivered network packs its weights once, with this method.
        """
        del values
        return constants

    def work(self, values: Mapping[str, Any]) -> float:
        """How many operations a kernel does for one of the operator, such as 3 for ``split3``."""
        del values
        return 1.0

    @property
    def tolerance(self) -> float:
        """The error that the template's algorithms may have beyond the operator's tolerance.

        It is usually 0. An error is the largest |difference| over the largest |expected|.
        """
        return 0.0

    def program(self, values: Mapping[str, Any], operator: Operator, inputs: Arrays) -> Program:
        """The program of a legal configuration, with constants packed for it."""
        places = sorted(operator.constants)
        arrays = [
            array if index in places else operator.arranged(index, array)
            for index, array in enumerate(inputs)
        ]
        packed = self.pack(values, [inputs[index] for index in places])
        for index, array in zip(places, packed, strict=True):
            arrays[index] = array
        # Networks have the same operator with other constants many times.
        key = dict(values), current_axes()
        latest = self._latest  # another thread may replace it
        if latest is None or latest[0] != key:
            self._latest = latest = key, self.function(values)
        return Program(
            function=latest[1],
            inputs=arrays,
            unpack=operator.logical,
            plain_loops=self.plain_loops,
        )


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


class TemplateBuilder(TVMBuilder):
    """Builds kernels of a template's configurations."""

    def __init__(self, template: Template, task: Task, *, threads: int) -> None:
        super().__init__(task, threads=threads)
        self.template = template
        self.space = template.design_space

    def reference(self) -> tuple[Arrays, float]:
        arrays, tolerance = super().reference()
        return arrays, max(tolerance, self.template.tolerance)

    def work(self, config: Sequence[int]) -> float:
        return self.template.work(self.space.decode(config))

    def rounding_rank(self, config: Sequence[int]) -> int:
        return ROUNDING_RANKS[self.space.decode(config).get(ALGORITHM, DIRECT)]

    def packed(self, config: Sequence[int]) -> Arrays:
        constants = [self.inputs[index] for index in sorted(self.operator.constants)]
        return self.template.pack(self._values(config), constants)

    def program(self, config: Sequence[int]) -> Program:
        program = self.template.program(self._values(config), self.operator, self.inputs)
        _check_elements(program.function)
        return program

    def _values(self, config: Sequence[int]) -> Mapping[str, Any]:
        """The knob values of a legal configuration."""
        reason = self.space.why_illegal(config)
        if reason is not None:
            raise InvalidConfigurationError(f"not a legal configuration: {reason}")
        return self.space.decode(config)


_FEW_ELEMENTS = MOST_ELEMENTS // 16
"""The elements of a kernel's arguments up to which arrays of its own are small enough, too."""


def _check_elements(function: tirx.PrimFunc) -> None:
    """Check that the kernel can index all arrays of a function in int32."""
    shapes = [parameter.shape for parameter in function.params]
    if max((_elements(shape) for shape in shapes), default=0) > _FEW_ELEMENTS:
        from tvm_ffi import structural_walk  # noqa: PLC0415 - after TVM, and for few functions

        def append(allocation: Any) -> None:
            shapes.append(allocation.buffer.shape)

        structural_walk(function.body, [(tirx.AllocBuffer, append)])
    most = max((_elements(shape) for shape in shapes), default=0)
    if most > MOST_ELEMENTS:
        raise InvalidConfigurationError(
            f"an array of the kernel has {most} elements, of which it can index {MOST_ELEMENTS}"
        )


def _elements(shape: Sequence[Any]) -> int:
    return math.prod(int(extent) for extent in shape)
