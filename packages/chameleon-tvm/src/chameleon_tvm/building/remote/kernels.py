"""Loads artifacts as kernels: on a GPU of this machine, or on a device of an RPC session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.building.kernel import CPU_FLUSH, Flush, ModuleKernel
from chameleon_tvm.building.remote.artifact import read_recipe
from chameleon_tvm.building.remote.buffers import DeviceBuffers
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.quick_tvm import tvm


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
    """

    device: tvm.runtime.Device
    buffers: DeviceBuffers
    library: Callable[[Path], tvm.runtime.Module]
    guard: Callable[[], AbstractContextManager[None]]
    flush: Flush
    cooldown: float

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
        return ModuleKernel(
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
        kind: TVM's name of the kind of device.
        has_preprocessor: Whether the device's runtime has the function ``CPU_FLUSH``.
    """
    if kind == "cpu" and has_preprocessor:
        return Flush(preprocessor=CPU_FLUSH)
    return Flush(copies=True)
