"""Compiled programs with their buffers, in the form in which a worker checks and times them.

``ModuleKernel`` holds a compiled module on any device that TVM reaches, of this process or remote.
``TVMKernel`` compiles a program for this process's own processor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, Kernel, TargetError

from chameleon_tvm._building.lowering import compile_function
from chameleon_tvm._building.rotation import ALIGNMENT, Rotation, size_of
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions.emission import require_permissions
from chameleon_tvm._late_tvm import tvm

CPU_FLUSH = "cache_flush_cpu_non_first_arg"
"""Name of TVM's function that evicts all arguments except the first, the activations, from a CPU's
caches."""


def _unchanged(outputs: Arrays) -> Arrays:
    return outputs


@attrs.frozen(kw_only=True, eq=False)
class Program:
    """A scheduled function and its inputs.

    Attributes:
        function: A ``tvm.tirx.PrimFunc`` whose parameters are the inputs, then the outputs.
        inputs: One array per input parameter, already packed into the function's layouts.
        unpack: A function that converts the function's outputs to the operator's logical outputs.
        plain_loops: Whether the function consists of loops over arrays without TVM's blocks. Such a
            function compiles faster.
    """

    function: tvm.tirx.PrimFunc
    inputs: Sequence[np.ndarray]
    unpack: Callable[[Arrays], Arrays] = _unchanged
    plain_loops: bool = False

    @property
    def changes_outputs(self) -> bool:
        """Whether ``unpack`` changes the outputs."""
        return self.unpack is not _unchanged

    @property
    def output_buffers(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of each output parameter."""
        buffers = list(self.function.params)[len(self.inputs) :]
        return [(tuple(int(n) for n in buffer.shape), str(buffer.dtype)) for buffer in buffers]


@attrs.frozen(kw_only=True)
class Flush:
    """The way in which a device's caches are emptied between the runs of a timed kernel.

    Attributes:
        preprocessor: Name of a function of the device's runtime that is called with the arguments
            before each run; empty for none.
        copies: Whether the device copies ``cold_bytes`` bytes of other data before each run.
    """

    preprocessor: str = ""
    copies: bool = False


class ModuleKernel(Kernel):
    """A function ``main`` of a compiled module with its buffers on one device.

    Args:
        cooldown: Pause between repeats, in seconds.
        guard: Makes a context that translates errors of the device's calls.
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
        """Time single runs, each after a flush of the caches.

        TVM flushes before each repeat. Copies of the arguments, as in ``TVMKernel``, would add the
        messages that select a copy to times over a network.
        """
        singles = self._evaluate(1, number * count, cold_bytes)
        return tuple(
            math.fsum(singles[first : first + number]) / number
            for first in range(0, number * count, number)
        )

    def _evaluate(self, number: int, count: int, flushed: int) -> tuple[float, ...]:
        """Seconds of ``count`` repeats of TVM's evaluator, after one run that is not timed."""
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
    """A function compiled in memory for this process's processor or GPU, with its buffers.

    Args:
        make_clock: Returns the clock of the program's instructions.
    """

    def __init__(
        self,
        program: Program,
        target: str,
        *,
        constants: Collection[int] = frozenset(),
        make_clock: Callable[[], Kernel] | None = None,
    ) -> None:
        self._make_clock = make_clock
        resolved = tvm_target(target)
        require_permissions(program.function)
        module = compile_function(program.function, resolved, plain_loops=program.plain_loops)
        device = tvm.runtime.device(device_kind(resolved))
        self._rotation: Rotation | None = None
        self._turn = 0
        inputs = [tvm.runtime.tensor(array, device=device) for array in program.inputs]
        # Outputs begin as zeros, so that a kernel that writes too little fails in the same way each
        # time.
        outputs = [
            tvm.runtime.tensor(np.zeros(shape, dtype), device=device)
            for shape, dtype in program.output_buffers
        ]
        super().__init__(module, device, inputs=inputs, outputs=outputs, unpack=program.unpack)
        self._cold = sorted(constants) or list(range(len(self._arguments)))

    @property
    def cold_bytes_each(self) -> int:
        """Bytes that cold timings evict: the constants, or all arguments if none is constant."""
        return sum(size_of(self._arguments[index]) for index in self._cold)

    def clock(self) -> tuple[str, float] | None:
        return None if self._make_clock is None else self._make_clock().clock()

    def _cold_repeats(self, number: int, count: int, cold_bytes: int) -> tuple[float, ...]:
        """Time runs in turn on enough copies of the arguments that each copy has left the caches.

        In a network, only constants are cold: the previous operator has just written the
        activations.
        During a flush, TVM's worker threads would fall asleep, and the time would include waking
        them.
        """
        each = max(ALIGNMENT * len(self._cold), self.cold_bytes_each)
        copies = 1 + math.ceil(cold_bytes / each)
        total = number * count + 1
        if each >= cold_bytes:  # one run evicts the data from the caches
            sets = [self._arguments] * total
        else:
            if self._rotation is None or self._rotation.copies < copies:
                self._rotation = Rotation(self._arguments, self._cold, copies, self._device)
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


@cache
def require_device(target: str) -> None:
    """Raise an error if this machine has no device that can run a target's kernels."""
    kind = device_kind(tvm_target(target))
    if not tvm.runtime.device(kind).exist:
        raise TargetError(
            f"the target is for {kind}, and TVM finds no such device in this machine",
            hint="Measure on a machine that has one: `runner: cuda` says what this machine lacks, "
            "`runner: {name: rpc, ...}` reaches other machines.",
        )


def device_kind(target: tvm.target.Target) -> str:
    """TVM's name for the kind of device that runs a target's kernels, such as ``cpu``."""
    kind = str(target.kind.name)
    return "cpu" if kind == "llvm" else kind
