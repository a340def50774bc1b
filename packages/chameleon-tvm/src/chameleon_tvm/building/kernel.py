"""Programs built by TVM and bound to their buffers: what a worker checks and times.

``ModuleKernel`` is a compiled module on any device that TVM reaches, this process's or a remote
one. ``TVMKernel`` compiles a program for this process's own processor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import attrs
import numpy as np
from chameleon_core.errors import TargetError
from chameleon_core.stages import Arrays, Kernel

from chameleon_tvm.building.lowering import compile_function
from chameleon_tvm.device.targets import tvm_target
from chameleon_tvm.instructions.emission import require_permissions
from chameleon_tvm.quick_tvm import tvm

CPU_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's function that takes all arguments but the first, the activations, out of a CPU's caches."""


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

    @property
    def changes_outputs(self) -> bool:
        """Whether ``unpack`` does anything."""
        return self.unpack is not _unchanged

    @property
    def output_buffers(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of each output parameter."""
        buffers = list(self.function.params)[len(self.inputs) :]
        return [(tuple(int(n) for n in buffer.shape), str(buffer.dtype)) for buffer in buffers]


@attrs.frozen(kw_only=True)
class Flush:
    """How caches are emptied between the runs of a kernel that is timed where it runs.

    Attributes:
        preprocessor: a function of the device's runtime that is called with the arguments before
            each run; empty if there is none.
        copies: whether as many bytes as are to be cold are copied on the device before each run.
    """

    preprocessor: str = ""
    copies: bool = False


class ModuleKernel(Kernel):
    """A function of a compiled module and its buffers, on one device.

    Args:
        module: holds the function as ``main``.
        device: where it runs; a device of an RPC session, perhaps.
        inputs: the input buffers, on the device.
        outputs: the output buffers, on the device.
        unpack: turns the function's outputs into the operator's logical outputs.
        flush: how runs find cold caches.
        cooldown: pause between repeats, in seconds.
        guard: makes the context of every use, which says what errors mean.
    """

    def __init__(
        self,
        module: tvm.runtime.Module,
        device: tvm.runtime.Device,
        *,
        inputs: Sequence[tvm.runtime.Tensor],
        outputs: Sequence[tvm.runtime.Tensor],
        unpack: Callable[[Arrays], Arrays] = _unchanged,
        flush: Flush | None = None,
        cooldown: float = 0.0,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._guard = guard
        self._module = module
        self._function = module["main"]
        self._device = device
        self._outputs = list(outputs)
        self._arguments = [*inputs, *outputs]
        self._unpack = unpack
        self._flush = flush or Flush()
        self._cooldown = cooldown
        self._evaluators: dict[
            tuple[int, int, int], Callable[..., tvm.runtime.module.BenchmarkResult]
        ] = {}

    def outputs(self) -> Arrays:
        with self._guard():
            self._function(*self._arguments)
            return self._unpack([tensor.numpy() for tensor in self._outputs])

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        return self.repeats(number, 1, cold_bytes=cold_bytes)[0]

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        with self._guard():
            if cold_bytes > 0:
                return self._cold_repeats(number, count, cold_bytes)
            return self._evaluate(number, count, 0)

    def _cold_repeats(self, number: int, count: int, cold_bytes: int) -> tuple[float, ...]:
        """Runs of which each follows a flush: TVM flushes before a repeat, so each is one run.

        From here the copies that other kernels rotate through could not be told apart from the
        time that it takes to say so, over a network.
        """
        singles = self._evaluate(1, number * count, cold_bytes)
        return tuple(
            math.fsum(singles[first : first + number]) / number
            for first in range(0, number * count, number)
        )

    def _evaluate(self, number: int, count: int, flushed: int) -> tuple[float, ...]:
        """Seconds of ``count`` repeats by TVM's evaluator, which sits where the kernel does.

        It loops in C++ and runs once more, untimed, before it starts.
        """
        key = number, count, flushed
        if key not in self._evaluators:
            self._evaluators[key] = self._module.time_evaluator(
                "main",
                self._device,
                number=number,
                repeat=count,
                cooldown_interval_ms=math.ceil(self._cooldown * 1e3),
                cache_flush_bytes=flushed if self._flush.copies else 0,
                f_preproc=self._flush.preprocessor if flushed else "",
            )
        return tuple(float(seconds) for seconds in self._evaluators[key](*self._arguments).results)


class TVMKernel(ModuleKernel):
    """One function compiled for a target (LLVM JIT, nothing written to disk) with its buffers.

    Args:
        program: the function and its packed inputs.
        target: the canonical target, as ``TargetResolver.resolve`` gives it.
        constants: places of the inputs that are constants of a network: cold caches are cold for
            them alone. Empty if there are none: then for all arguments.
    """

    def __init__(
        self, program: Program, target: str, *, constants: Collection[int] = frozenset()
    ) -> None:
        resolved = tvm_target(target)
        require_permissions(program.function)
        module = compile_function(program.function, resolved, plain_loops=program.plain_loops)
        device = tvm.runtime.device(device_kind(resolved))
        self._program = program
        self._constants = sorted(constants)
        self._rotation: list[list[tvm.runtime.Tensor]] = []
        self._turn = 0
        inputs, outputs = self._allocate(device)
        super().__init__(module, device, inputs=inputs, outputs=outputs, unpack=program.unpack)

    @property
    def cold_bytes_each(self) -> int:
        """Bytes of one copy, as packed, of the arguments that are evicted between repeats."""
        cold = [self._arguments[index] for index in self._constants] or self._arguments
        return sum(
            math.prod(int(extent) for extent in tensor.shape) * np.dtype(str(tensor.dtype)).itemsize
            for tensor in cold
        )

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
            inputs, outputs = self._allocate(self._device)
            return inputs + outputs
        arguments = list(self._arguments)
        for index in self._constants:
            array = self._program.inputs[index]
            arguments[index] = tvm.runtime.tensor(array, device=self._device)
        return arguments

    def _allocate(
        self, device: tvm.runtime.Device
    ) -> tuple[list[tvm.runtime.Tensor], list[tvm.runtime.Tensor]]:
        inputs = [tvm.runtime.tensor(array, device=device) for array in self._program.inputs]
        # Zeros, not garbage: a kernel that writes too little must fail the same way each time.
        outputs = [
            tvm.runtime.tensor(np.zeros(shape, dtype), device=device)
            for shape, dtype in self._program.output_buffers
        ]
        return inputs, outputs


@cache
def require_device(target: str) -> None:
    """Refuse a target that nothing in this machine runs.

    Raises:
        TargetError: TVM finds no such device here.
    """
    kind = device_kind(tvm_target(target))
    if not tvm.runtime.device(kind).exist:
        raise TargetError(
            f"the target is for {kind}, and TVM finds no such device in this machine",
            hint="Measure on one that has it: `runner: cuda` says what is missing here, "
            "`runner: {name: rpc, ...}` reaches other machines.",
        )


def device_kind(target: tvm.target.Target) -> str:
    """TVM's name for the kind of device a target's kernels run on."""
    kind = str(target.kind.name)
    return "cpu" if kind == "llvm" else kind
