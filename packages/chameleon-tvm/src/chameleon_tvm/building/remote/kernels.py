"""Artifacts become kernels: on a GPU of this machine, or at the other end of a session."""

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
    """Makes kernels of artifacts on one device.

    Attributes:
        device: where they run.
        buffers: their inputs and outputs.
        library: loads a library, given its file.
        guard: the context of every use of a kernel.
        flush: how cold caches are made.
        cooldown: pause between repeats, in seconds.
    """

    device: tvm.runtime.Device
    buffers: DeviceBuffers
    library: Callable[[Path], tvm.runtime.Module]
    guard: Callable[[], AbstractContextManager[None]]
    flush: Flush
    cooldown: float

    def load(self, artifact: Path) -> ModuleKernel:
        """The kernel of an artifact.

        Raises:
            OSError: a file is missing.
            ValueError: a file is damaged.
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
    """How caches are emptied on a kind of device.

    A CPU's runtime flushes the very lines of the arguments, except for the first, the activations,
    which stay. Other devices copy as many bytes as are asked for.

    Args:
        kind: TVM's name of the kind of device.
        has_preprocessor: whether its runtime has ``CPU_FLUSH``.
    """
    if kind == "cpu" and has_preprocessor:
        return Flush(preprocessor=CPU_FLUSH)
    return Flush(copies=True)
