"""ARM's instructions compute what their meaning says: cross-compiled, run by an emulator."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from chameleon_tvm._building.lowering import lower_function
from chameleon_tvm._device.cpus.features import target_features
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions.multiply_add import (
    Bfloat16Weights,
    IntegerMultiplyAdd,
    MultiplyAdd,
)
from chameleon_tvm._instructions.neon import Bfmmla, Sdot, Smmla, Usdot
from chameleon_tvm.testing.instructions import require_meaning, trials_of
from computing import resolved
from programs import completed
from tvm_ffi import libinfo

TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+dotprod,+i8mm,+bf16"
COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
ONES = (MultiplyAdd, Bfloat16Weights, IntegerMultiplyAdd, Sdot, Usdot, Bfmmla, Smmla)

pytestmark = [
    pytest.mark.skipif(
        not COMPILER, reason="there is no aarch64-linux-gnu-gcc (g++-aarch64-linux-gnu)"
    ),
    pytest.mark.skipif(
        not EMULATOR, reason="there is no qemu-aarch64 (Debian's package qemu-user)"
    ),
]


@pytest.mark.parametrize("one", ONES, ids=lambda one: one.name)
def test_it_computes_its_meaning(one, tmp_path):
    target = tvm_target(resolved(TARGET))
    trials = trials_of(one(), target_features(target))
    assert trials
    for trial in trials:
        lower_function(trial.function(), target, plain_loops=True).mod.write_to_file(
            str(tmp_path / "kernel.o"), "o"
        )
        operands = trial.operands()
        require_meaning(trial, operands, emulated(trial, operands, tmp_path), where=one.name)


def emulated(trial, operands, folder):
    """The sums that a program of the kernel in a folder makes of the operands."""
    program, own = folder / "program", Path(__file__).with_name("emulated.c")
    headers = [f"-I{libinfo.find_include_path()}", f"-I{libinfo.find_dlpack_include_path()}"]
    build = [COMPILER, "-static", *headers, own, folder / "kernel.o", "-o", program]
    completed(build)
    words = []
    arguments = trial.arguments(operands)
    for number, array in enumerate(arguments):
        array.tofile(folder / str(number))
        words += [folder / str(number), 8 * array.itemsize]
    completed([EMULATOR, "-cpu", "max", program, *words])
    return np.fromfile(words[-2], arguments[-1].dtype)
