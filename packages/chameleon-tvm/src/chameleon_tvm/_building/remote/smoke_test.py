"""A tiny test function that runs on a device before any kernel does, to check the device."""

from __future__ import annotations

import functools
from pathlib import Path

import attrs
import numpy as np
from chameleon_core.plugin_api import DeviceLostError
from chameleon_system.api import temporary_folder

from chameleon_tvm._building.kernel import Program
from chameleon_tvm._building.remote.export import export_program
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._quick_tvm import Schedule, te, tirx, tvm

_LENGTH = 256
_THREADS = 32


@attrs.frozen(kw_only=True)
class ArtifactFiles:
    """The files of an exported program in memory, by name."""

    files: dict[str, bytes]

    @classmethod
    def of(cls, program: Program, target: str) -> ArtifactFiles:
        """Export a program, and read its files."""
        with temporary_folder() as name:
            folder = Path(name)
            export_program(program, target, folder, task=None)
            return cls(files={path.name: path.read_bytes() for path in folder.iterdir()})

    def write(self, folder: Path) -> None:
        """Write the artifact into a folder."""
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


@functools.cache
def smoke_test_for(target: str) -> ArtifactFiles:
    """Compile the test function for a target. Each process compiles it once for a target.

    Args:
        target: The canonical target.
    """
    program = Program(function=_function(tvm_target(target)), inputs=[_numbers()])
    return ArtifactFiles.of(program, target)


def check_output(output: np.ndarray, device: str) -> None:
    """Check the output of the test function on a device.

    Args:
        output: The output.
        device: The name of the device.

    Raises:
        DeviceLostError: The output is wrong.
    """
    if not np.array_equal(output, 2.0 * _numbers() + 1.0):
        raise DeviceLostError(
            f"{device} computes wrong numbers in its self-test",
            hint="Look at its memory, clocks and driver.",
        )


def _numbers() -> np.ndarray:
    return np.arange(_LENGTH, dtype=np.float32)


def _function(target: tvm.target.Target) -> tirx.PrimFunc:
    """A function that doubles every number and adds one: vectorized on a CPU, threads on a GPU."""
    source = te.placeholder((_LENGTH,), "float32", name="given")
    result = te.compute((_LENGTH,), lambda i: source[i] * 2.0 + 1.0, name="made")
    schedule = Schedule(te.create_prim_func([source, result]))
    (loop,) = schedule.get_loops(schedule.get_sblock("made"))
    outer, inner = schedule.split(loop, [None, _THREADS])
    if target.kind.name == "llvm":
        schedule.vectorize(inner)
    else:
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")
    return schedule.mod["main"]
