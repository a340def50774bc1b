"""Loads artifacts as kernels: on a GPU of this machine, or on a device of an RPC session."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, Task

from chameleon_tvm._building.kernel import CPU_FLUSH, Flush, ModuleKernel
from chameleon_tvm._building.remote.artifact import read_recipe
from chameleon_tvm._building.remote.buffers import DeviceBuffers
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._quick_tvm import tvm


class CudaEvents:
    """Events of the CUDA driver, which time runs after flushes of a GPU's caches.

    TVM's evaluator waits for the GPU after each flush, so its time includes the launch by the CPU.
    """

    def __init__(self, device: tvm.runtime.Device) -> None:
        self._device = device
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._events: tuple[ctypes.c_void_p, ...] = ()
        self._flush_buffers: dict[int, list[tvm.runtime.Tensor]] = {}

    def seconds(self, run: Callable[[], object], cold_bytes: int) -> float:
        """Seconds of one run on the GPU, after a copy of ``cold_bytes`` bytes.

        Raises:
            RuntimeError: The driver reports an error, such as an illegal memory access.
        """
        self._flush_caches(cold_bytes)
        start, end = self._events = self._events or (self._event(), self._event())
        self._call("cuEventRecord", start, None)
        run()
        self._call("cuEventRecord", end, None)
        self._call("cuEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e-3

    def _flush_caches(self, cold_bytes: int) -> None:
        if cold_bytes not in self._flush_buffers:
            zeros = np.zeros(math.ceil(cold_bytes / 4), np.float32)
            self._flush_buffers[cold_bytes] = [
                tvm.runtime.tensor(zeros, self._device) for _ in range(2)
            ]
        source, copy = self._flush_buffers[cold_bytes]
        source.copyto(copy)

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._driver, function)(*arguments)
        if status:
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(name))
            raise RuntimeError(f"{function} failed: {(name.value or b'').decode()} ({status})")


class EventTimedKernel(ModuleKernel):
    """A kernel on a GPU of this process, whose cold runs are timed between events."""

    def __init__(self, *arguments: Any, events: CudaEvents, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._events = events

    def _cold_repeats(self, number: int, count: int, cold_bytes: int) -> tuple[float, ...]:
        def run() -> None:
            self._function(*self._arguments)

        run()
        repeats = []
        for _ in range(count):
            time.sleep(self._cooldown)
            singles = [self._events.seconds(run, cold_bytes) for _ in range(number)]
            repeats.append(math.fsum(singles) / number)
        return tuple(repeats)


@attrs.frozen(kw_only=True, eq=False)
class KernelLoader:
    """Loads artifacts as kernels on one device.

    Attributes:
        device: The device that runs the kernels.
        buffers: The kernels' inputs and outputs on the device.
        library: Function that loads a library from a file.
        guard: A function that returns a context. All calls of the device run in such a context,
            which translates their errors.
        flush: The way in which the device's caches are emptied between timed runs.
        cooldown: Pause between repeats, in seconds.
        events: Events that time cold runs; None for TVM's evaluator.
    """

    device: tvm.runtime.Device
    buffers: DeviceBuffers
    library: Callable[[Path], tvm.runtime.Module]
    guard: Callable[[], AbstractContextManager[None]]
    flush: Flush
    cooldown: float
    events: CudaEvents | None = None

    def load(self, artifact: Path) -> ModuleKernel:
        """Load an exported kernel from its folder (artifact) onto the device.

        Args:
            artifact: The folder.

        Raises:
            OSError: A file is missing.
            ValueError: A file is damaged.
        """
        recipe = read_recipe(artifact)
        module = self.library(artifact / recipe.library)
        unpack: Callable[[Arrays], Arrays] = list
        if recipe.task is not None:
            unpack = operator_of(Task(**recipe.task)).logical
        kind = (
            ModuleKernel
            if self.events is None
            else functools.partial(EventTimedKernel, events=self.events)
        )
        return kind(
            module,
            self.device,
            inputs=[self.buffers.input(argument, artifact) for argument in recipe.inputs],
            outputs=[self.buffers.output(argument) for argument in recipe.outputs],
            unpack=unpack,
            flush=self.flush,
            cooldown=self.cooldown,
            guard=self.guard,
        )


def flush_of(kind: str, *, has_preprocessor: bool) -> Flush:
    """The way to empty the caches of a kind of device between timed runs.

    On a CPU, TVM's function ``CPU_FLUSH`` evicts all arguments except the first, the activations.
    Other devices copy as many bytes as the timing asks to evict.

    Args:
        has_preprocessor: Whether the device's runtime has the function ``CPU_FLUSH``.
    """
    if kind == "cpu" and has_preprocessor:
        return Flush(preprocessor=CPU_FLUSH)
    return Flush(copies=True)
