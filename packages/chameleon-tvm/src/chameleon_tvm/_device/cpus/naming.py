"""The CPU name and features that LLVM should compile with for a processor.

LLVM guesses the name from the model number, which a virtual machine may change. For example, it
takes a Granite Rapids that reports model 167 for a ``rocketlake``. So the flags decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
from chameleon_system.api import Processor, this_processor

from chameleon_tvm._device.cpus.features import (
    llvm_target,
    reported_features,
    unreported_features,
    used_features,
)
from chameleon_tvm._device.file_cache import cached_in_file
from chameleon_tvm._late_tvm import codegen

_INTEL = (
    *("core2", "penryn", "nehalem", "sandybridge", "ivybridge", "haswell", "skylake", "alderlake"),
    *("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids"),
    "graniterapids",
)
_AMD = ("barcelona", "btver2", "bdver1", "bdver2", "bdver4", "znver3", "znver4", "znver5")
_GENERIC_X86 = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_FAMILIES = {"GenuineIntel": _INTEL, "AuthenticAMD": _AMD, "HygonGenuine": ("znver1",)}
"""For each vendor, LLVM's names to choose from, one for each set of instructions; oldest first.
``znver3`` also stands for the set of Zen 1 and Zen 2, whose models LLVM knows."""

_ARM_PARTS = {
    (0x41, 0xD03): "cortex-a53",
    (0x41, 0xD05): "cortex-a55",
    (0x41, 0xD07): "cortex-a57",
    (0x41, 0xD08): "cortex-a72",
    (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD0C): "neoverse-n1",
    (0x41, 0xD40): "neoverse-v1",
    (0x41, 0xD41): "cortex-a78",
    (0x41, 0xD49): "neoverse-n2",
    (0x41, 0xD4F): "neoverse-v2",
    (0x41, 0xD84): "neoverse-v3",
    (0x46, 0x001): "a64fx",
    (0xC0, 0xAC3): "ampere1",
    (0xC0, 0xAC4): "ampere1a",
}
"""LLVM's names of ARM processors by implementer and part (llvm/lib/TargetParser/Host.cpp)."""


@attrs.frozen(kw_only=True)
class CpuName:
    """The processor name and features that LLVM compiles for.

    Attributes:
        mcpu: LLVM's name of a processor.
        mattr: Features that the processor has and the name does not imply (``+``), or that the name
            implies and the processor lacks (``-``).
    """

    mcpu: str
    mattr: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """The name and features as options of TVM's target."""
        return {"mcpu": self.mcpu, **({"mattr": list(self.mattr)} if self.mattr else {})}

    def command_line(self) -> str:
        """The name and features as the options that a user writes."""
        features = f" -mattr={','.join(self.mattr)}" if self.mattr else ""
        return f"-mcpu={self.mcpu}{features}"


def closest_cpu_name(processor: Processor, guess: str, triple: str) -> CpuName:
    """Choose the CPU name whose features differ least from those that the system reports."""
    reported = reported_features(processor)
    # The name `generic` comes last, because LLVM schedules instructions for the named CPU.
    candidates = _candidates(processor)
    order = [*candidates, guess] if guess == "generic" else [guess, *candidates]
    names = [name for name in order if codegen.llvm_is_valid_cpu(name, triple)]
    closest = CpuName(mcpu=guess)
    fewest: int | None = None
    for name in names:
        target = llvm_target(name, triple=triple)
        used = used_features(target)
        if name != guess:
            used |= unreported_features(target)
        differences = {f"+{flag}" for flag in reported - used} | {
            f"-{flag}" for flag in used - reported
        }
        if fewest is None or len(differences) < fewest:
            # LLVM applies features in order. "+" sorts before "-", so missing features stay off.
            closest, fewest = CpuName(mcpu=name, mattr=tuple(sorted(differences))), len(differences)
        if fewest == 0:
            break
    return closest


@cache
def native_name() -> CpuName:
    """The processor name and features that LLVM should compile with for this machine's CPU."""
    mcpu, *mattr = _native_name_and_features()
    return CpuName(mcpu=mcpu, mattr=tuple(mattr))


@cached_in_file()
def _native_name_and_features() -> list[str]:
    """The name, then its features."""
    guess = str(codegen.llvm_get_system_cpu())
    processor = this_processor()
    if processor is None:
        return [guess]
    name = closest_cpu_name(processor, guess, str(codegen.llvm_get_system_triple()))
    return [name.mcpu, *name.mattr]


def describe_masking(processor: Processor, guess: str, name: CpuName, triple: str) -> str:
    """Say how the model number and the flags of an x86 processor contradict each other.

    Returns a part of a sentence; empty if LLVM's guess is right.
    """
    guest = "hypervisor" in processor.flags
    reported, used = reported_features(processor), used_features(llvm_target(guess, triple=triple))
    if processor.architecture != "x86_64" or (guess == name.mcpu and used <= reported):
        return ""
    if guess == name.mcpu or reported <= used:
        hiding = "a hypervisor hides" if guest else "the firmware or the system hides"
        return (
            f"model {processor.model} is a {guess}'s; {hiding} {', '.join(sorted(used - reported))}"
        )
    if guess in _GENERIC_X86:
        return f"LLVM does not know model {processor.model}; the flags say {name.mcpu}"
    masks = ": a hypervisor masks the model number" if guest else ""
    return f"model {processor.model} is a {guess}'s; the flags say {name.mcpu}{masks}"


@cached_in_file()
def native_masking() -> str:
    """The text of ``describe_masking`` about this machine's processor."""
    processor = this_processor()
    guess, triple = str(codegen.llvm_get_system_cpu()), str(codegen.llvm_get_system_triple())
    return "" if processor is None else describe_masking(processor, guess, native_name(), triple)


def _candidates(processor: Processor) -> Sequence[str]:
    if processor.architecture == "aarch64":
        implementer = int(processor.vendor, 0) if processor.vendor.startswith("0x") else 0
        known = _ARM_PARTS.get((implementer, processor.model))
        return [known, "generic"] if known else ["generic"]
    return [*_FAMILIES.get(processor.vendor, ()), *_GENERIC_X86]
