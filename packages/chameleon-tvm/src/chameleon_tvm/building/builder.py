"""A builder of TVM programs: what every TVM space and the untuned baseline share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from chameleon_core.stages import Arrays, Builder, Kernel
from chameleon_core.task import Task

from chameleon_tvm.building.kernel import Program, TVMKernel, require_device
from chameleon_tvm.operators.base import operator_of


class TVMBuilder(Builder):
    """Builds kernels of one task; subclasses say which program a configuration is.

    Args:
        task: the task.
        threads: how many threads the kernels will run with.
    """

    def __init__(self, task: Task, *, threads: int) -> None:
        self.task = task
        self.threads = threads
        self.operator = operator_of(task)
        self.inputs = self.operator.inputs()

    def use(self, inputs: Arrays) -> None:
        """Compute on these logical inputs from now on, instead of the deterministic ones.

        A network's own weights are packed this way.
        """
        self.inputs = inputs

    @abstractmethod
    def program(self, config: Sequence[int]) -> Program:
        """The scheduled program of a configuration.

        Raises:
            InvalidConfigurationError: the configuration names no program.
        """

    def build(self, config: Sequence[int]) -> Kernel:
        require_device(self.task.target)
        program = self.program(config)
        return TVMKernel(program, self.task.target, constants=self.operator.constants)

    def export(self, config: Sequence[int], artifact: Path) -> None:
        # Linking and compiling for other machines are no business of those who build locally.
        from chameleon_tvm.building.remote.export import export_program  # noqa: PLC0415

        program = self.program(config)
        task = self._task_that_unpacks(program)
        export_program(program, self.task.target, artifact, task=task)

    def listings(self, config: Sequence[int]) -> Mapping[str, str]:
        # As above: a worker that measures has no use for it.
        from chameleon_tvm.building.listings import listings_of  # noqa: PLC0415

        return listings_of(self.program(config), self.task.target)

    def _task_that_unpacks(self, program: Program) -> Task | None:
        """The task from which another process rebuilds what undoes the outputs' layouts.

        Raises:
            NotImplementedError: a function that is not the operator's undoes them.
        """
        if not program.changes_outputs:
            return None
        if program.unpack != self.operator.logical:
            raise NotImplementedError(
                f"{type(self).__name__} unpacks outputs with a function of its own, "
                "which cannot be sent to a device"
            )
        return self.task

    def reference(self) -> tuple[Arrays, float]:
        return self.operator.reference(self.inputs), self.operator.tolerance
