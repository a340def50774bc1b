"""The contract of templates, and the builder that turns their configurations into programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from chameleon_core.errors import InvalidConfigurationError
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.building.builder import TVMBuilder
from chameleon_tvm.building.kernel import Program
from chameleon_tvm.operators.base import Operator
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template.options import TemplateOptions


class Template(ABC):
    """A hand-written way to compute one operator, with the choices left open as knobs.

    Args:
        task: the operator.
        options: of the space.

    Raises:
        ConfigError: the template does not apply; the hint names a space that does.
    """

    plain_loops: ClassVar[bool] = True
    """Whether functions are loops over arrays, without TVM's blocks (see :class:`.Program`)."""

    @abstractmethod
    def __init__(self, task: Task, options: TemplateOptions) -> None: ...

    @abstractmethod
    def space(self) -> DesignSpace:
        """The knobs, what makes a configuration legal, features and first guesses."""

    @abstractmethod
    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        """The function of a legal configuration, given as knob name to value.

        Its parameters are the operator's inputs, then the output, in the operator's physical
        shapes; but those that are constant are packed.
        """

    @abstractmethod
    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        """Logical constants (weights, [bias]) as ``function`` of the same configuration wants them.

        A network packs its own weights with it, once and for all.
        """

    @property
    def tolerance(self) -> float:
        """Error that its algorithms may have beyond the operator's own tolerance; 0 of most."""
        return 0.0

    def program(self, values: Mapping[str, Any], operator: Operator, inputs: Arrays) -> Program:
        """The program of a legal configuration, constants packed for it."""
        places = sorted(operator.constants)
        arrays = [
            array if index in places else operator.arranged(index, array)
            for index, array in enumerate(inputs)
        ]
        packed = self.pack(values, [inputs[index] for index in places])
        for index, array in zip(places, packed, strict=True):
            arrays[index] = array
        return Program(
            function=self.function(values),
            inputs=arrays,
            unpack=operator.logical,
            plain_loops=self.plain_loops,
        )


class TemplateBuilder(TVMBuilder):
    """Builds configurations of a template.

    Args:
        template: the template, made for the same task.
        task: the task.
        threads: how many threads the kernels will run with.
    """

    def __init__(self, template: Template, task: Task, *, threads: int) -> None:
        super().__init__(task, threads=threads)
        self.template = template
        self.space = template.space()

    def reference(self) -> tuple[Arrays, float]:
        arrays, tolerance = super().reference()
        return arrays, max(tolerance, self.template.tolerance)

    def program(self, config: Sequence[int]) -> Program:
        reason = self.space.why_illegal(config)
        if reason is not None:
            raise InvalidConfigurationError(f"not a legal configuration: {reason}")
        return self.template.program(self.space.decode(config), self.operator, self.inputs)
