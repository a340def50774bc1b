"""Programs built by TVM and loaded in this process: what a worker checks and times."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

import attrs
import numpy as np
from chameleon_core.stages import Arrays, Kernel

from chameleon_tvm.lowering import compile_function
from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.targets import tvm_target


def _unchanged(outputs: Arrays) -> Arrays:
    return outputs


@attrs.frozen(kw_only=True, eq=False)
class Program:
    """A scheduled function together with what it is to be run on.

    Attributes:
        function: a ``tvm.tirx.PrimFunc`` whose parameters are the inputs, then the outputs.
        inputs: one array per input parameter, already packed into the function's layouts.
        unpack: turns the function's outputs into the operator's logical outputs.
        plain_loops: whether it is loops over arrays, without TVM's blocks, which builds faster.
    """

    function: tvm.tirx.PrimFunc
    inputs: Sequence[np.ndarray]
    unpack: Callable[[Arrays], Arrays] = _unchanged
    plain_loops: bool = False


class TVMKernel(Kernel):
    """One function compiled for a target (LLVM JIT, nothing written to disk) with its buffers.

    Args:
        program: the function and its packed inputs.
        target: the canonical target, as ``TargetResolver.resolve`` gives it.
        constants: places of the inputs that are constants of a network: cold caches are cold for
            them alone. Empty where there are none: then for all arguments.
    """

    def __init__(
        self, program: Program, target: str, *, constants: Collection[int] = frozenset()
    ) -> None:
        resolved = tvm_target(target)
        self._module = compile_function(program.function, resolved, plain_loops=program.plain_loops)
        self._function = self._module["main"]
        self._device = tvm.runtime.device(
            "cpu" if resolved.kind.name == "llvm" else str(resolved.kind.name)
        )
        self._program = program
        self._constants = sorted(constants)
        self._arguments = self._allocate()
        self._evaluators: dict[
            tuple[int, int], Callable[..., tvm.runtime.module.BenchmarkResult]
        ] = {}
        self._rotation: list[list[tvm.runtime.Tensor]] = []
        self._turn = 0

    @property
    def cold_bytes_each(self) -> int:
        """Bytes of one copy of the arguments that cold caches are cold for, as packed."""
        cold = [self._arguments[place] for place in self._constants] or self._arguments
        return sum(
            math.prod(int(extent) for extent in tensor.shape) * np.dtype(str(tensor.dtype)).itemsize
            for tensor in cold
        )

    def outputs(self) -> Arrays:
        self._function(*self._arguments)
        produced = self._arguments[len(self._program.inputs) :]
        return self._program.unpack([tensor.numpy() for tensor in produced])

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        return self.repeats(number, 1, cold_bytes=cold_bytes)[0]

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        if cold_bytes > 0:
            return self._cold_repeats(number, count, cold_bytes)
        if (number, count) not in self._evaluators:
            # TVM's evaluator loops in C++ and runs once more, untimed, before it starts.
            self._evaluators[number, count] = self._module.time_evaluator(
                "main", self._device, number=number, repeat=count
            )
        results = self._evaluators[number, count](*self._arguments).results
        return tuple(float(seconds) for seconds in results)

    def _cold_repeats(self, number: int, count: int, cold_bytes: int) -> tuple[float, ...]:
        """Walk through as many copies of the arguments as it takes to evict each of them.

        In a network the operator before has just written the activations, but all the other
        operators' weights have been read since this one's: only constants are cold.
        Copies rather than a flush between runs: the worker threads of TVM's pool go to sleep
        during a flush, and their waking up would be counted. Calling from Python costs about
        a microsecond a run.
        """
        # One larger than that has left the caches by the time it is read again.
        each = max(1, self.cold_bytes_each)
        copies = 1 if each >= cold_bytes else 1 + math.ceil(cold_bytes / each)
        while len(self._rotation) < copies:
            self._rotation.append(self._copy())
        total = number * count + 1
        sets = [self._rotation[(self._turn + run) % copies] for run in range(total)]
        self._turn = (self._turn + total) % copies
        self._function(*sets[0])
        self._device.sync()
        seconds = []
        for first in range(1, total, number):
            started = time.perf_counter()
            for arguments in sets[first : first + number]:
                self._function(*arguments)
            self._device.sync()
            seconds.append((time.perf_counter() - started) / number)
        return tuple(seconds)

    def _copy(self) -> list[tvm.runtime.Tensor]:
        """The arguments with a fresh copy of those that are to be cold."""
        if not self._constants:
            return self._allocate()
        arguments = list(self._arguments)
        for place in self._constants:
            array = self._program.inputs[place]
            arguments[place] = tvm.runtime.tensor(array, device=self._device)
        return arguments

    def _allocate(self) -> list[tvm.runtime.Tensor]:
        function = self._program.function
        inputs = [tvm.runtime.tensor(array, device=self._device) for array in self._program.inputs]
        outputs = []
        for parameter in list(function.params)[len(inputs) :]:
            buffer = parameter
            shape = tuple(int(extent) for extent in buffer.shape)
            # Zeros, not garbage: a kernel that writes too little must fail the same way each time.
            zeros = np.zeros(shape, str(buffer.dtype))
            outputs.append(tvm.runtime.tensor(zeros, device=self._device))
        return inputs + outputs
