"""A function that asks a server's processor for its instructions, and the system for AMX.

TVM's own server reports LLVM's guess from the model number, which a virtual machine may change. The
function also requests AMX for the session. Its code is for the oldest processor of the
architecture.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from chameleon_system.api import AMX_CALL, temporary_folder

from chameleon_tvm._building.kernel import Program
from chameleon_tvm._building.remote.artifact import read_recipe
from chameleon_tvm._building.remote.smoke_test import ArtifactFiles
from chameleon_tvm._device.cpus.registers import (
    HWCAP,
    HWCAP2,
    LEAVES,
    MIDR,
    PERMISSION,
    WORDS,
    XCR0,
    Reported,
    decode_processor,
)
from chameleon_tvm._device.linking import architecture
from chameleon_tvm._quick_tvm import tirx, tvm

_BASELINE_CPUS = {"x86_64": "x86-64", "aarch64": "generic"}
"""LLVM's name of the oldest processor of each architecture that has a probe."""

_FUNCTION = "chameleon_probe"
_LEAF_OF_FEATURES = LEAVES.index((7, 0))
_LEAF_OF_SYSTEM = LEAVES.index((1, 0))


def ask_processor(
    triple: str, device: tvm.runtime.Device, library: Callable[[Path], tvm.runtime.Module]
) -> Reported | None:
    """Ask the processor of a server what it is, and request AMX for the session.

    Args:
        triple: LLVM's triple of the server's machine.
        device: The server's CPU.
        library: A function that loads a library on the server from a file.

    Returns:
        The answer, or None if there is no probe for such machines: it needs Linux.
    """
    if "linux" not in triple or architecture(triple) not in _BASELINE_CPUS:
        return None
    output = tvm.runtime.tensor(np.zeros(WORDS, np.uint32), device)
    with temporary_folder() as name:
        folder = Path(name)
        probe_for(triple).write(folder)
        library(folder / read_recipe(folder).library)["main"](output)
    return decode_processor([int(word) for word in output.numpy()], architecture(triple))


@functools.cache
def probe_for(triple: str) -> ArtifactFiles:
    """Compile the probe for machines of a triple."""
    cpu_architecture = architecture(triple)
    llvm_ir = {"x86_64": _x86, "aarch64": _arm}[cpu_architecture]()
    words = tirx.decl_buffer([WORDS], "uint32", "words")
    call = tirx.call_extern("int32", _FUNCTION, tirx.address_of(tirx.BufferLoad(words, [0])))
    body = tirx.AttrStmt(0, "pragma_import_llvm", tvm.ir.StringImm(llvm_ir), tirx.Evaluate(call))
    function = tirx.PrimFunc([words], body)
    target = (
        f'{{"kind": "llvm", "mcpu": "{_BASELINE_CPUS[cpu_architecture]}", "mtriple": "{triple}"}}'
    )
    return ArtifactFiles.of(Program(function=function, inputs=[]), target)


def _x86() -> str:
    """The probe for x86-64 in LLVM IR. It saves RBX itself, which LLVM may use as a base."""
    lines = [_store_leaf(number, *leaf) for number, leaf in enumerate(LEAVES)]
    number, request, feature = AMX_CALL
    return f"""
define i32 @{_FUNCTION}(ptr %words) {{
entry:
{"".join(lines)}
  %saves = and i32 %r{_LEAF_OF_SYSTEM}.2, 134217728
  %may_read = icmp ne i32 %saves, 0
  br i1 %may_read, label %registers, label %done
registers:
  %halves = call {{ i32, i32 }} asm sideeffect "xgetbv", "={{ax}},={{dx}},{{cx}}"(i32 0)
  %low = extractvalue {{ i32, i32 }} %halves, 0
  %xcr0 = getelementptr i32, ptr %words, i64 {XCR0}
  store i32 %low, ptr %xcr0, align 4
  %tiles = and i32 %low, 393216
  %saves_tiles = icmp eq i32 %tiles, 393216
  %amx = and i32 %r{_LEAF_OF_FEATURES}.3, 16777216
  %has_amx = icmp ne i32 %amx, 0
  %known = icmp uge i32 %r0.0, 7
  %both = and i1 %saves_tiles, %has_amx
  %asks = and i1 %both, %known
  br i1 %asks, label %permission, label %done
permission:
  %result = call i64 asm sideeffect "syscall",
    "={{ax}},{{ax}},{{di}},{{si}},~{{cx}},~{{r11}},~{{memory}},~{{dirflag}},~{{fpsr}},~{{flags}}"(
      i64 {number}, i64 {request}, i64 {feature})
  %error = trunc i64 %result to i32
  %answer = getelementptr i32, ptr %words, i64 {PERMISSION}
  store i32 %error, ptr %answer, align 4
  br label %done
done:
  ret i32 0
}}
"""


def _store_leaf(number: int, leaf: int, subleaf: int) -> str:
    """LLVM IR that stores the four registers of a leaf of CPUID."""
    cpu_architecture = "{ i32, i32, i32, i32 }"
    code = "xchgq %rbx, ${1:q}\\0A\\09cpuid\\0A\\09xchgq %rbx, ${1:q}"
    registers = "={ax},=&r,={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"
    call = f'asm sideeffect "{code}", "{registers}"(i32 {leaf}, i32 {subleaf})'
    lines = [f"  %q{number} = call {cpu_architecture} {call}"]
    for register in range(4):
        lines += [
            f"  %r{number}.{register} = extractvalue {cpu_architecture} %q{number}, {register}",
            f"  %p{number}.{register} = getelementptr i32, ptr %words, i64 {4 * number + register}",
            f"  store i32 %r{number}.{register}, ptr %p{number}.{register}, align 4",
        ]
    return "\n".join(lines) + "\n"


def _arm() -> str:
    """The probe for aarch64 in LLVM IR. Linux lets programs read MIDR_EL1 if HWCAP_CPUID is set."""
    return f"""
declare i64 @getauxval(i64)
define i32 @{_FUNCTION}(ptr %words) {{
entry:
  %hwcap = call i64 @getauxval(i64 16)
  %at = getelementptr i32, ptr %words, i64 {HWCAP}
  store i64 %hwcap, ptr %at, align 4
  %hwcap2 = call i64 @getauxval(i64 26)
  %at2 = getelementptr i32, ptr %words, i64 {HWCAP2}
  store i64 %hwcap2, ptr %at2, align 4
  %cpuid = and i64 %hwcap, 2048
  %may_read = icmp ne i64 %cpuid, 0
  br i1 %may_read, label %registers, label %done
registers:
  %midr = call i64 asm sideeffect "mrs $0, MIDR_EL1", "=r"()
  %at3 = getelementptr i32, ptr %words, i64 {MIDR}
  store i64 %midr, ptr %at3, align 4
  br label %done
done:
  ret i32 0
}}
"""
