"""The base class of builders of TVM programs, which all TVM spaces and baselines use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from chameleon_core.plugin_api import Arrays, Builder, Kernel, Task

from chameleon_tvm._building.clock import clock_of
from chameleon_tvm._building.kernel import Program, TVMKernel, device_kind, require_device
from chameleon_tvm._building.lowering import cuda_source, lower_function
from chameleon_tvm._building.remote.export import export_program
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._operators.base import operator_of


class TVMBuilder(Builder):
    """Builds kernels of one task; subclasses define the program of each configuration."""

    def __init__(self, task: Task, *, threads: int) -> None:
        self.task = task
        self.threads = threads
        self.operator = operator_of(task)
        self.inputs = self.operator.inputs()

    def use(self, inputs: Arrays) -> None:
        """Set the inputs (in logical layout) of later kernels, which are random by default.

        The delivery of a network calls this method to pack the network's weights.

        Args:
            inputs: One array per input of the operator, in its logical layout.
        """
        self.inputs = inputs

    @abstractmethod
    def program(self, config: Sequence[int]) -> Program:
        """Make the scheduled program of a configuration, before it is compiled.

        Args:
            config: The knob indices of the configuration.

        Raises:
            InvalidConfigurationError: The configuration has no program.
        """

    def packed(self, config: Sequence[int]) -> Arrays:
        """The operator's constants, as the kernel of a configuration takes them.

        Args:
            config: The knob indices of the configuration.

        Raises:
            InvalidConfigurationError: The configuration has no program.
        """
        inputs = self.program(config).inputs
        return [inputs[index] for index in sorted(self.operator.constants)]

    def build(self, config: Sequence[int]) -> Kernel:
        require_device(self.task.target)
        program = self.program(config)
        return TVMKernel(
            program,
            self.task.target,
            constants=self.operator.constants,
            make_clock=clock_of(program, self.task.target),
        )

    def peak(self, config: Sequence[int]) -> float | None:
        """The operations of the operator per second that this CPU's cores could do at present.

        The cores run the instructions of a kernel on registers alone.

        Args:
            config: The knob indices of the configuration.

        Returns:
            The operations per second; None without a clock for the instructions.
        """
        make_clock = clock_of(self.program(config), self.task.target)
        if make_clock is None:
            return None
        return make_clock().operations_per_second() / self.work(config)

    def work(self, config: Sequence[int]) -> float:
        """How many operations the kernel of a configuration does for one of the operator."""
        del config
        return 1.0

    def rounding_rank(self, config: Sequence[int]) -> int:
        """How large a configuration's rounding errors are: 0 for those of sums of products."""
        del config
        return 0

    def export(self, config: Sequence[int], artifact: Path) -> None:
        program = self.program(config)
        task = self._task_that_unpacks(program)
        export_program(program, self.task.target, artifact, task=task)

    def listings(self, config: Sequence[int]) -> Mapping[str, str]:
        program, target = self.program(config), tvm_target(self.task.target)
        # Nothing runs, so that the target may be another machine's.
        function = program.function.with_attr("global_symbol", "main")
        texts = {"TensorIR.py": f"{function.script()}\n"}
        if device_kind(target) == "cpu":
            library = lower_function(program.function, target, plain_loops=program.plain_loops)
            texts["assembly.s"] = str(library.mod.inspect_source("asm"))
        elif device_kind(target) == "cuda":
            texts["kernel.cu"] = cuda_source(program.function, target)
        return texts

    def _task_that_unpacks(self, program: Program) -> Task | None:
        """The task from which another process remakes the function that undoes output layouts."""
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
