"""Decodes a processor from the numbers that it and the system report to a program.

On x86-64 these are CPUID, XCR0, and Linux's answer about AMX (Intel 64 and IA-32 Architectures
Software Developer's Manual, volume 2). On ARM they are Linux's ``AT_HWCAP`` words and MIDR_EL1
(arch/arm64/include/uapi/asm/hwcap.h).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from functools import cache

import attrs
from chameleon_system.api import AMX, Processor

from chameleon_tvm._device.cpus.features import (
    CPUID_BITS,
    EAX,
    HWCAP2_BITS,
    HWCAP_BITS,
    LINUX_NAMES,
)

LEAVES = (
    *((0, 0), (1, 0), (7, 0), (7, 1), (0x80000000, 0), (0x80000001, 0)),
    *((0x80000002, 0), (0x80000003, 0), (0x80000004, 0)),
)
"""Leaves and subleaves of CPUID whose four registers are the first words of an x86 answer."""

_WORDS = 4 * len(LEAVES)
XCR0, PERMISSION = _WORDS, _WORDS + 1
"""Positions of the lower half of XCR0, and of the negated error number of the request for AMX."""

WORDS = 48
"""Number of 32-bit words of an answer, of any architecture; words that are not used are 0."""

HWCAP, HWCAP2, MIDR = 0, 2, 4
"""Positions of an ARM answer: two words of each number, the lower half first."""

_STATE_BITS = {"avx512": 0xE6, "amx": 0x60000, "avx": 0x6, "fma": 0x6, "f16c": 0x6, "xop": 0x6}
"""Bits of XCR0 that the system sets if it saves the registers of instructions, by the beginning of
their flags' names."""


@attrs.frozen(kw_only=True)
class Reported:
    """A processor as it describes itself to a program.

    Attributes:
        processor: The processor, with the flags that Chameleon's tables of features name.
        refused: The reason for each permission that the system refuses, such as ``amx``.
    """

    processor: Processor
    refused: dict[str, str] = attrs.field(factory=dict)


def decode_processor(words: Sequence[int], architecture: str) -> Reported:
    """Decode an answer of the probe: ``WORDS`` unsigned integers of 32 bits."""
    return (_arm if architecture == "aarch64" else _x86)(words)


def _x86(words: Sequence[int]) -> Reported:
    registers = {leaf: words[4 * n : 4 * n + 4] for n, leaf in enumerate(LEAVES)}
    flags = {
        flag
        for (leaf, subleaf, register), bits in CPUID_BITS.items()
        if _has_leaf(registers, leaf, subleaf)
        for flag, bit in bits_of(bits)
        if registers[leaf, subleaf][register] >> bit & 1 and _is_saved(flag, words[XCR0])
    }
    refused = {}
    if "amx_tile" in flags and words[PERMISSION]:
        refused[AMX] = os.strerror(-_signed(words[PERMISSION]))
    _, b, c, d = registers[0, 0]
    signature = registers[1, 0][EAX]
    family, model = signature >> 8 & 15, signature >> 4 & 15
    if family in {6, 15}:
        model |= signature >> 12 & 0xF0
    if family == 15:  # noqa: PLR2004 - higher families need more bits
        family += signature >> 20 & 255
    name = b""
    if _has_leaf(registers, 0x80000004, 0):
        name = struct.pack("<12I", *(n for leaf in LEAVES[-3:] for n in registers[leaf]))
    processor = Processor(
        architecture="x86_64",
        vendor=_text(struct.pack("<3I", b, d, c)),
        family=family,
        model=model,
        name=_text(name),
        flags=frozenset(flags),
    )
    return Reported(processor=processor, refused=refused)


def _has_leaf(registers: dict[tuple[int, int], Sequence[int]], leaf: int, subleaf: int) -> bool:
    """Whether a processor knows a leaf; for others, CPUID returns the registers of another leaf."""
    if registers[leaf & 0x80000000, 0][EAX] < leaf:
        return False
    return subleaf == 0 or registers[leaf, 0][EAX] >= subleaf


def _is_saved(flag: str, xcr0: int) -> bool:
    """Whether the system saves the registers that a flag's instructions use."""
    return xcr0 & _state_bits(flag) == _state_bits(flag)


def _state_bits(flag: str) -> int:
    return next((bits for prefix, bits in _STATE_BITS.items() if flag.startswith(prefix)), 0)


_NOWHERE = (0xFFFFFFFF, 0, 0, 0, 0)
"""A bit that no processor sets."""
_AT_HWCAP, _AT_HWCAP2 = 16, 26


def reported_bit(feature: str) -> tuple[int, int, int, int, int]:
    """The bit with which a processor reports a feature of LLVM.

    Args:
        feature: LLVM's name of the feature, such as ``sse4.2``.

    Returns:
        The leaf and subleaf of CPUID, the register, the bit, and the bits of XCR0 that the
        feature's registers need. On ARM, the leaf is a type of the auxiliary vector (getauxval).
    """
    return _reported_bits().get(feature, _NOWHERE)


@cache
def _reported_bits() -> dict[str, tuple[int, int, int, int, int]]:
    places = {
        flag: (*place, bit, _state_bits(flag))
        for place, bits in CPUID_BITS.items()
        for flag, bit in bits_of(bits)
    }
    for word, bits in ((_AT_HWCAP, HWCAP_BITS), (_AT_HWCAP2, HWCAP2_BITS)):
        places |= {flag: (word, 0, 0, bit, 0) for flag, bit in bits_of(bits)}
    return {
        feature: places[flag] for names in LINUX_NAMES.values() for feature, flag in names.items()
    }


def _arm(words: Sequence[int]) -> Reported:
    hwcap, hwcap2, midr = (words[at] | words[at + 1] << 32 for at in (HWCAP, HWCAP2, MIDR))
    tables = (hwcap, HWCAP_BITS), (hwcap2, HWCAP2_BITS)
    flags = {flag for value, bits in tables for flag, bit in bits_of(bits) if value >> bit & 1}
    processor = Processor(
        architecture="aarch64",
        vendor=f"0x{midr >> 24 & 255:02x}" if midr else "",
        model=midr >> 4 & 0xFFF,
        flags=frozenset(flags),
    )
    return Reported(processor=processor)


def bits_of(table: str) -> Iterator[tuple[str, int]]:
    """The flags of a table of bits, each with the number of its bit."""
    for entry in table.split(", "):
        flag, bit = entry.split()
        yield flag, int(bit)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _text(characters: bytes) -> str:
    return characters.rstrip(b"\0").decode("ascii", "replace").strip()
