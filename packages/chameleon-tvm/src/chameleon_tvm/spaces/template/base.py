"""What a template is, and the builder that turns its configurations into programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_core.errors import InvalidConfigurationError
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.builder import TVMBuilder
from chameleon_tvm.kernel import Program
from chameleon_tvm.operators.base import Operator


class Template(ABC):
    """A hand-written way to compute one operator, with the choices left open as knobs.

    Args:
        task: the operator on an llvm target.

    Raises:
        ConfigError: the template does not apply; the hint names a space that does.
    """

    @abstractmethod
    def __init__(self, task: Task) -> None: ...

    @abstractmethod
    def space(self) -> DesignSpace:
        """The knobs, what makes a configuration legal, features and first guesses."""

    @abstractmethod
    def program(self, values: Mapping[str, Any], operator: Operator, inputs: Arrays) -> Program:
        """The program of a legal configuration, constants packed for it."""


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

    def program(self, config: Sequence[int]) -> Program:
        reason = self.space.why_illegal(config)
        if reason is not None:
            raise InvalidConfigurationError(f"not a legal configuration: {reason}")
        return self.template.program(self.space.decode(config), self.operator, self.inputs)
