"""The name and features that LLVM should compile with for a processor.

LLVM goes by the model number, which a virtual machine may change. A Granite Rapids that says it is
model 167 becomes a ``rocketlake``, without AMX and bfloat16. Here the flags decide. LLVM's guess
stays as it is if its features are those of the flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
from chameleon_system.processor import Processor, this_processor

from chameleon_tvm.device.cpus.features import (
    hidden_features,
    llvm_target,
    told_features,
    used_features,
)
from chameleon_tvm.quick_tvm import codegen

_INTEL = (
    *("core2", "penryn", "nehalem", "sandybridge", "ivybridge", "haswell", "skylake", "alderlake"),
    *("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids"),
    "graniterapids",
)
_AMD = ("barcelona", "btver2", "bdver1", "bdver2", "bdver4", "znver1", "znver3", "znver4", "znver5")
_ANY_X86 = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_FAMILIES = {"GenuineIntel": _INTEL, "AuthenticAMD": _AMD, "HygonGenuine": ("znver1",)}
"""Names to choose from, one of each set of instructions, of each vendor; oldest first."""

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
"""Implementer and part of ARM's processors -> LLVM's name (llvm/lib/TargetParser/Host.cpp)."""


@attrs.frozen(kw_only=True)
class CpuName:
    """The processor that LLVM compiles for.

    Attributes:
        mcpu: one of LLVM's names.
        mattr: features that the name does not imply (``+``) or implies in vain (``-``).
    """

    mcpu: str
    mattr: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """The options of TVM's target."""
        return {"mcpu": self.mcpu, **({"mattr": list(self.mattr)} if self.mattr else {})}

    def words(self) -> str:
        """The options as a user writes them."""
        features = f" -mattr={','.join(self.mattr)}" if self.mattr else ""
        return f"-mcpu={self.mcpu}{features}"


def name_of(processor: Processor, guess: str, triple: str) -> CpuName:
    """The name that fits a processor's flags best, and what it lacks or has in excess.

    Args:
        processor: what the system says.
        guess: LLVM's own name for it, taken if no other fits better. It alone is trusted with
            instructions that systems do not show.
        triple: LLVM's triple.
    """
    seen = told_features(processor)
    names = [
        name for name in (guess, *_candidates(processor)) if codegen.llvm_is_valid_cpu(name, triple)
    ]
    best = CpuName(mcpu=guess)
    fewest: int | None = None
    for name in names:
        target = llvm_target(name, triple=triple)
        used = used_features(target)
        if name != guess:
            used |= hidden_features(target)
        differing = {f"+{flag}" for flag in seen - used} | {f"-{flag}" for flag in used - seen}
        if fewest is None or len(differing) < fewest:
            # "+" sorts before "-", and LLVM takes them in order: what is lacking stays out.
            best, fewest = CpuName(mcpu=name, mattr=tuple(sorted(differing))), len(differing)
        if fewest == 0:
            break
    return best


@cache
def native_name() -> CpuName:
    """The processor and features that LLVM should compile with for this machine."""
    guess = str(codegen.llvm_get_system_cpu())
    processor = this_processor()
    if processor is None:
        return CpuName(mcpu=guess)
    return name_of(processor, guess, str(codegen.llvm_get_system_triple()))


def _candidates(processor: Processor) -> Sequence[str]:
    if processor.architecture == "aarch64":
        implementer = int(processor.vendor, 0) if processor.vendor.startswith("0x") else 0
        known = _ARM_PARTS.get((implementer, processor.model))
        return [known, "generic"] if known else ["generic"]
    return [*_FAMILIES.get(processor.vendor, ()), *_ANY_X86]
