"""CPU features that compilers use, by their names in LLVM and in ``/proc/cpuinfo``."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from chameleon_system.api import Processor, own_architecture, this_processor

from chameleon_tvm._device.file_cache import cached_in_file
from chameleon_tvm._device.linking import architecture
from chameleon_tvm._late_tvm import Target, codegen

_SAME_NAMES = (
    *("sse", "sse2", "ssse3", "sse4.1", "sse4.2", "sse4a", "popcnt", "bmi2", "movbe", "f16c"),
    *("fma", "fma4", "xop", "tbm", "gfni", "avx", "avx2", "avx512f", "avx512cd", "avx512bw"),
    *("avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "amx-tile", "amx-int8", "amx-bf16"),
)
"""Features of x86 whose name in Linux is LLVM's name with underscores."""
_X86 = {
    **{feature: re.sub(r"[.-]", "_", feature) for feature in _SAME_NAMES},
    "sse3": "pni",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "avxvnni": "avx_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
}
_ARM = {
    "neon": "asimd",
    "lse": "atomics",
    "rdm": "asimdrdm",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "dotprod": "asimddp",
    "complxnum": "fcma",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
    "sme2": "sme2",
}
LINUX_NAMES = {"x86_64": _X86, "aarch64": _ARM}
"""For each architecture, Linux's name of each of LLVM's features
(arch/x86/include/asm/cpufeatures.h, arch/arm64/kernel/cpuinfo.c). The table has the features that
compilers use by default and whose absence causes an illegal instruction. Features for systems,
cryptography and hints are left out."""

EAX, EBX, ECX, EDX = range(4)
CPUID_BITS = {
    (1, 0, ECX): (
        "pni 0, ssse3 9, fma 12, sse4_1 19, sse4_2 20, movbe 22, popcnt 23, avx 28, f16c 29"
    ),
    (1, 0, EDX): "sse 25, sse2 26",
    (7, 0, EBX): (
        "bmi1 3, avx2 5, bmi2 8, avx512f 16, avx512dq 17, avx512ifma 21, avx512cd 28, "
        "avx512bw 30, avx512vl 31"
    ),
    (7, 0, ECX): (
        "avx512vbmi 1, avx512_vbmi2 6, gfni 8, avx512_vnni 11, avx512_bitalg 12, "
        "avx512_vpopcntdq 14"
    ),
    (7, 0, EDX): "avx512_vp2intersect 8, amx_bf16 22, avx512_fp16 23, amx_tile 24, amx_int8 25",
    (7, 1, EAX): "avx_vnni 4, avx512_bf16 5",
    (0x80000001, 0, ECX): "abm 5, sse4a 6, xop 11, fma4 16, tbm 21",
}
"""For each leaf, subleaf and register of CPUID, Linux's names of flags with their bits
(arch/x86/include/asm/cpufeatures.h)."""

HWCAP_BITS = "asimd 1, atomics 8, asimdhp 10, asimdrdm 12, fcma 14, asimddp 20, sve 22, asimdfhm 23"
HWCAP2_BITS = "sve2 1, i8mm 13, bf16 14, sme 23, sme2 37"
"""Flags of ARM with their bits in Linux's words AT_HWCAP and AT_HWCAP2
(arch/arm64/include/uapi/asm/hwcap.h)."""

_VECTOR_PREFIXES = ("avx", "amx", "sve", "sme")
"""Prefixes of the names of vector instructions. Linux does not report some of these, such as
amx-fp16 and avxifma."""


def flag_of(feature: str) -> str:
    """The flag of ``/proc/cpuinfo`` for a CPU feature of LLVM, without ``.``, ``_`` and ``-``.

    Args:
        feature: LLVM's name of the feature, such as ``sse4.2``.
    """
    flags = {**_X86, **_ARM}
    return "".join(letter for letter in flags.get(feature, feature) if letter not in "._-")


def reported_features(processor: Processor) -> frozenset[str]:
    """The CPU features that the operating system reports for a processor, by LLVM's names."""
    names = LINUX_NAMES.get(processor.architecture, {})
    return frozenset(feature for feature, flag in names.items() if flag in processor.flags)


def used_features(target: Target) -> frozenset[str]:
    """The CPU features that code for a target may use.

    Features that Linux never reports are left out, so that the result can be compared with the
    features that Linux reports for a machine.
    """
    return target_features(target) & _reported_names(architecture_of(target))


_OF_PERMISSIONS = {"amx": "amx-"}
"""The prefix of the features that need a permission, by permission."""
_UNUSED_IN_FLOAT32 = frozenset({"avx512fp16", "avxvnni"})
"""Features of CPUs with AMX that kernels of float32 do not use. Some of AMD's CPUs lack them."""


def target_without(target: str, permissions: frozenset[str], *, float32: bool) -> str:
    """A target without the features that need permissions, so that code runs on more CPUs.

    Args:
        target: A canonical target of a CPU.
        permissions: The permissions.
        float32: Whether kernels compute in float32. Features that they do not use are left out too.
    """
    options = json.loads(target)
    features = used_features(Target(options))
    prefixes = tuple(_OF_PERMISSIONS[permission] for permission in permissions)
    left_out = {feature for feature in features if feature.startswith(prefixes)}
    if float32:
        left_out |= features & _UNUSED_IN_FLOAT32
    without = [f"-{feature}" for feature in sorted(left_out)]
    return json.dumps({**options, "mattr": [*options.get("mattr", ()), *without]}, sort_keys=True)


def unreported_features(target: Target) -> frozenset[str]:
    """The vector features of a target that Linux never reports, so a processor may lack them."""
    reported = _reported_names(architecture_of(target))
    return frozenset(
        name for name in target_features(target) - reported if name.startswith(_VECTOR_PREFIXES)
    )


@cache
def host_features() -> frozenset[str]:
    """The features of this machine's CPU that Linux reports, or LLVM's guess without a report."""
    processor = this_processor()
    if processor is None:
        return used_features(llvm_target(str(codegen.llvm_get_system_cpu())))
    return reported_features(processor)


def llvm_target(mcpu: str, *, triple: str = "", mattr: frozenset[str] = frozenset()) -> Target:
    """TVM's CPU target for LLVM's name of a processor."""
    value: dict[str, Any] = {"kind": "llvm", "mcpu": mcpu}
    if triple:
        value["mtriple"] = triple
    if mattr:
        value["mattr"] = sorted(mattr)
    return Target(value)


def architecture_of(target: Target) -> str:
    """The architecture of a CPU by Linux's name, such as ``x86_64``, for TVM's target object."""
    return architecture(str(target.attrs.get("mtriple", "") or codegen.llvm_get_system_triple()))


def _reported_names(architecture: str) -> frozenset[str]:
    return frozenset(LINUX_NAMES.get(architecture, {}))


@cache
def cpu_features(target: str) -> frozenset[str]:
    """All features that code for a canonical CPU target may use, by LLVM's names."""
    return frozenset(_cpu_features(target))


@cached_in_file()
def _cpu_features(target: str) -> list[str]:
    return sorted(target_features(Target(json.loads(target))))


def cpu_architecture(target: str) -> str:
    """The architecture of a CPU by Linux's name, for a target as canonical JSON."""
    triple = json.loads(target).get("mtriple", "")
    return architecture(triple) if triple else own_architecture()


def target_features(target: Target) -> frozenset[str]:
    """All features that code for a target may use, by LLVM's names."""
    return frozenset(str(feature) for feature in codegen.llvm_get_cpu_features(target))
