"""A processor's own numbers name the same instructions as Linux does."""

import errno
from pathlib import Path

import pytest
from chameleon_system._permissions import AMX
from chameleon_system._processor import parse_cpuinfo
from chameleon_tvm._device.cpus.features import (
    CPUID_BITS,
    HWCAP2_BITS,
    HWCAP_BITS,
    LINUX_NAMES,
    reported_features,
)
from chameleon_tvm._device.cpus.registers import (
    HWCAP,
    HWCAP2,
    LEAVES,
    MIDR,
    PERMISSION,
    WORDS,
    XCR0,
    bits_of,
    decode_processor,
)

CPUINFO = Path(__file__).with_name("cpuinfo")
X86 = ("haswell", "skylake-avx512", "icelake-server", "sapphirerapids", "zen3", "zen4", "zen5")
ALL_SAVED = 0x602E7


def described(name, architecture="x86_64"):
    return parse_cpuinfo((CPUINFO / name).read_text(), architecture)


def run_process(processor, *, xcr0=ALL_SAVED, permission=0, highest=7, highest_subleaf=1):
    """The numbers that an x86 processor with these flags, vendor and name reports."""
    words = [0] * WORDS
    at = {leaf: 4 * number for number, leaf in enumerate(LEAVES)}
    for (leaf, subleaf, register), bits in CPUID_BITS.items():
        for flag, bit in bits_of(bits):
            words[at[leaf, subleaf] + register] |= (flag in processor.flags) << bit
    vendor = processor.vendor.encode()
    words[at[0, 0]] = highest
    for register, part in ((1, vendor[:4]), (3, vendor[4:8]), (2, vendor[8:])):
        words[at[0, 0] + register] = int.from_bytes(part, "little")
    words[at[7, 0]] = highest_subleaf
    words[at[0x80000000, 0]] = 0x80000004
    name = processor.name.encode().ljust(48, b"\0")
    for number in range(12):
        part = name[4 * number : 4 * number + 4]
        words[at[0x80000002, 0] + number] = int.from_bytes(part, "little")
    # Families from 15 on are the sum of two fields.
    low, high = min(processor.family, 15), max(processor.family - 15, 0)
    model = processor.model
    words[at[1, 0]] = high << 20 | model >> 4 << 16 | low << 8 | (model & 15) << 4
    words[XCR0] = xcr0
    words[PERMISSION] = permission & 0xFFFFFFFF
    return words


@pytest.mark.parametrize("name", X86)
def test_an_x86_processor_is_what_linux_says(name):
    processor = described(name)
    answer = decode_processor(run_process(processor), "x86_64")
    assert reported_features(answer.processor) == reported_features(processor)
    for field in ("vendor", "family", "model", "name"):
        assert getattr(answer.processor, field) == getattr(processor, field), field
    assert answer.refused == {}


def test_every_feature_has_a_bit():
    bits = {flag for table in CPUID_BITS.values() for flag, _ in bits_of(table)}
    assert bits == set(LINUX_NAMES["x86_64"].values())
    tables = HWCAP_BITS, HWCAP2_BITS
    arm = {flag for table in tables for flag, _ in bits_of(table)}
    assert arm == set(LINUX_NAMES["aarch64"].values())


@pytest.mark.parametrize(
    ("xcr0", "lost"),
    [
        (0x602E7 & ~0x60000, {"amx-tile", "amx-int8", "amx-bf16"}),
        (0x7, {"avx512f", "avx512vl", "avx512bf16", "amx-tile"}),
        (0x0, {"avx", "avx2", "fma", "f16c", "avxvnni", "avx512f"}),
    ],
)
def test_registers_that_the_system_does_not_save(xcr0, lost):
    processor = described("sapphirerapids")
    answer = decode_processor(run_process(processor, xcr0=xcr0), "x86_64")
    seen = reported_features(answer.processor)
    assert lost <= reported_features(processor) - seen
    assert {"sse4.2", "popcnt", "bmi2"} <= seen


def test_leaves_that_a_processor_does_not_know_are_not_read():
    processor = described("sapphirerapids")
    old = reported_features(decode_processor(run_process(processor, highest=4), "x86_64").processor)
    assert "avx" in old
    assert old.isdisjoint({"avx2", "avx512f", "amx-tile", "avxvnni"})
    subleaf = decode_processor(run_process(processor, highest_subleaf=0), "x86_64").processor
    assert reported_features(processor) - reported_features(subleaf) == {"avxvnni", "avx512bf16"}


def test_a_refused_permission_has_a_reason():
    answer = run_process(described("sapphirerapids"), permission=-errno.EPERM)
    assert decode_processor(answer, "x86_64").refused == {AMX: "Operation not permitted"}
    older = run_process(described("haswell"), permission=-errno.EINVAL)
    assert decode_processor(older, "x86_64").refused == {}


def test_an_arm_processor_is_what_linux_says():
    processor = described("neoverse-v1", "aarch64")
    words = [0] * WORDS
    for at, table in ((HWCAP, HWCAP_BITS), (HWCAP2, HWCAP2_BITS)):
        value = sum(1 << bit for flag, bit in bits_of(table) if flag in processor.flags)
        words[at], words[at + 1] = value & 0xFFFFFFFF, value >> 32
    words[MIDR] = int(processor.vendor, 0) << 24 | 1 << 20 | 15 << 16 | processor.model << 4
    answer = decode_processor(words, "aarch64").processor
    assert reported_features(answer) == reported_features(processor)
    assert (answer.vendor, answer.model) == (processor.vendor, processor.model)


def test_words_beyond_the_lower_half_count():
    words = [0] * WORDS
    words[HWCAP2 + 1] = 1 << 5
    assert reported_features(decode_processor(words, "aarch64").processor) == {"sme2"}
