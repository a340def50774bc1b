"""Conformance suites of operators, templates and instructions."""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

from chameleon_core.api import Registry, ResolvedPipeline
from chameleon_core.plugin_api import NoOptions, OperatorRecord, Task
from chameleon_testing.suites.base import ConformanceSuite

from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._operators.spec import OperatorSpec
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm.testing.conformance import check_operator, check_template
from chameleon_tvm.testing.instructions import check_instruction


class _OperatorTaskSuite(ConformanceSuite):
    """Base class of checks that need a task of an operator.

    Attributes:
        spec: The arguments of an operator with small shapes, whose function is compiled and run.
        target: A target of this machine, in the form that users write.
        task: A task to use instead of ``spec`` and ``target``; None by default.
    """

    spec: ClassVar[OperatorSpec | None] = None
    target: ClassVar[str] = "native"
    task: ClassVar[Task | None] = None

    @classmethod
    def operators(cls) -> tuple[str, ...]:
        """The kinds of operators that the suite's task may have."""
        return (cls.record.name,)

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        from chameleon_core.api import TaskSource  # noqa: PLC0415 - imports a frontend

        source = TaskSource(pipeline)
        tasks = source.tasks(source.target())
        fitting = [task for task in tasks if task.operator in cls.operators()]
        return {"task": fitting[0]} if fitting else {}

    def given_task(self) -> Task:
        """The task that the author of the suite gave, or a task of the operator's arguments.

        Raises:
            unittest.SkipTest: The suite has neither a task nor an operator's arguments.
        """
        self.test_record()
        if self.task is not None:
            return self.task
        spec: OperatorSpec = self.given("spec", "the arguments of an operator")
        return spec.task("conformance", TVMTargets(NoOptions()).resolve(self.target))

    def require_found(self, kind: str) -> None:
        """Require that another process can find the plugin by its name, as build processes must.

        Args:
            kind: The kind of plugin, such as ``operators``.
        """
        known = [entry.record for entry in Registry.default().entries(kind)]
        assert self.record in known, (
            f"{self.where}: no process would find it: install its package (`pip install -e .`), or "
            "give it with `chameleon --plugin`"
        )


class OperatorSuite(_OperatorTaskSuite):
    """Checks of an operator's record, with a task of small shapes."""

    kind = "operators"
    record: ClassVar[OperatorRecord | None] = None

    def test_function(self) -> None:
        """The unscheduled function computes the same as the reference, from the same inputs."""
        task = self.given_task()
        self.require_found("operators")
        check_operator(task)

    def test_arguments(self) -> None:
        """The arguments of a task stay the same if a new task is made from them."""
        task = self.given_task()
        kind: Any = None if self.record is None else self.record.arguments
        if kind is None:
            raise unittest.SkipTest("only networks are made of such operators")
        again = kind.of(task).task(task.name, task.target)
        assert again.key == task.key, (
            f"{self.where}: its arguments change when they are read from a task again"
        )


class TemplateSuite(_OperatorTaskSuite):
    """Checks of a template, with a task of small shapes that the template supports."""

    kind = "templates"

    @classmethod
    def operators(cls) -> tuple[str, ...]:
        operators: tuple[str, ...] = cls.record.operators
        return operators

    def test_configurations(self) -> None:
        """The design space is valid, and some configurations compute the reference's outputs."""
        task = self.given_task()
        self.require_found("templates")
        check_template(task, TemplateOptions(templates=(self.record.name,)))


class InstructionSuite(ConformanceSuite):
    """Checks of an instruction.

    Attributes:
        target: A CPU that has the instruction, in the form that users write; it may be the CPU of
            another machine.
    """

    kind = "instructions"
    target: ClassVar[str] = "native"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        return {"target": pipeline.target}

    def test_meaning(self) -> None:
        """Compiled code contains the instruction, and its results equal those of ``meaning``.

        The results are compared only if this CPU has the instruction.
        """
        self.test_record()
        check_instruction(self.record, self.target)


__all__ = ["InstructionSuite", "OperatorSuite", "TemplateSuite"]
