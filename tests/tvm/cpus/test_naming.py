"""LLVM's name for a processor follows from its flags: recorded texts of processors."""

from pathlib import Path

import attrs
import pytest
from chameleon_system._processor import Processor, parse_cpuinfo, this_processor
from chameleon_tvm._device.cpus import naming
from chameleon_tvm._device.cpus.features import (
    LINUX_NAMES,
    host_features,
    llvm_target,
    reported_features,
    unreported_features,
    used_features,
)
from chameleon_tvm._device.cpus.naming import (
    CpuName,
    closest_cpu_name,
    describe_masking,
    native_masking,
    native_name,
)
from chameleon_tvm._quick_tvm import codegen
from hypothesis import given, settings
from hypothesis import strategies as st

X86 = "x86_64-unknown-linux-gnu"
ARM = "aarch64-unknown-linux-gnu"
CPUINFO = Path(__file__).with_name("cpuinfo")


def recorded(name, architecture="x86_64"):
    processor = parse_cpuinfo((CPUINFO / name).read_text(), architecture)
    assert processor is not None
    return processor


@pytest.mark.parametrize(
    ("file", "guess", "expected"),
    [
        # LLVM knew the model but not the processor's kind, as an older LLVM would.
        ("zen3", "x86-64", "znver3"),
        ("zen5", "x86-64", "znver5"),
        ("skylake-avx512", "generic", "skylake-avx512"),
        # Linux shows no amx-fp16: the model number alone tells a Granite Rapids.
        ("graniterapids-guest", "graniterapids", "graniterapids"),
    ],
)
def test_x86_names_fit_the_flags(file, guess, expected):
    assert closest_cpu_name(recorded(file), guess, X86) == CpuName(mcpu=expected)


def test_a_known_part_is_named_though_it_has_no_further_feature():
    part = Processor(architecture="aarch64", vendor="0x41", model=0xD08, flags=frozenset({"asimd"}))
    assert closest_cpu_name(part, "generic", ARM) == CpuName(mcpu="cortex-a72")


def test_arm_names_come_from_the_part():
    name = closest_cpu_name(recorded("neoverse-v1", "aarch64"), "generic", ARM)
    assert name == CpuName(mcpu="neoverse-v1")


def test_a_guest_of_granite_rapids_has_amx_and_bfloat16():
    name = closest_cpu_name(recorded("graniterapids-guest"), "rocketlake", X86)
    used = used_features(llvm_target(name.mcpu, triple=X86, mattr=frozenset(name.mattr)))
    assert {"amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512fp16"} <= used


def test_what_a_virtual_machine_hides_is_left_out():
    seen = recorded("sapphirerapids")
    hidden = {"amx_tile", "amx_int8", "amx_bf16"}
    processor = Processor(
        architecture="x86_64", vendor=seen.vendor, flags=seen.flags - frozenset(hidden)
    )
    name = closest_cpu_name(processor, "sapphirerapids", X86)
    assert name == CpuName(mcpu="sapphirerapids", mattr=("-amx-bf16", "-amx-int8", "-amx-tile"))
    assert name.command_line() == "-mcpu=sapphirerapids -mattr=-amx-bf16,-amx-int8,-amx-tile"


def test_a_model_without_its_avx512_gets_another_name():
    """As on a virtual machine that hides AVX-512: the guess goes by the model alone."""
    seen = recorded("skylake-avx512")
    plain = frozenset(flag for flag in seen.flags if not flag.startswith("avx512"))
    processor = Processor(architecture="x86_64", vendor=seen.vendor, flags=plain)
    name = closest_cpu_name(processor, "skylake-avx512", X86)
    assert "avx512f" not in used_features(llvm_target(name.mcpu, triple=X86))


@pytest.mark.parametrize("file", ["zen3", "zen4", "zen5", "haswell", "sapphirerapids"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_code_never_uses_what_the_flags_lack(file, data):
    seen = recorded(file)
    flags = data.draw(st.sets(st.sampled_from(sorted(seen.flags))))
    guess = data.draw(st.sampled_from(["znver5", "graniterapids", "haswell", "generic"]))
    processor = Processor(architecture="x86_64", vendor=seen.vendor, flags=frozenset(flags))
    name = closest_cpu_name(processor, guess, X86)
    used = used_features(llvm_target(name.mcpu, triple=X86, mattr=frozenset(name.mattr)))
    # Flags without what they build on (AVX2 without AVX) are no processor's: LLVM adds it.
    features = reported_features(processor)
    closed = used_features(
        llvm_target("x86-64", triple=X86, mattr=frozenset(f"+{row}" for row in features))
    )
    assert used <= closed


@pytest.mark.parametrize(
    ("file", "guess", "without", "words"),
    [
        ("sapphirerapids", "sapphirerapids", (), ""),
        ("graniterapids", "graniterapids", (), ""),
        (
            *("graniterapids-guest", "rocketlake", ()),
            "model 167 is a rocketlake's; the flags say sapphirerapids: {masks}",
        ),
        (
            *("haswell", "skylake", ("f16c",)),
            "model 60 is a skylake's; the firmware or the system hides f16c",
        ),
        ("alderlake", "raptorlake", (), ""),
        ("alderlake", "x86-64", (), "LLVM does not know model 151; the flags say alderlake"),
        ("alderlake", "haswell", (), "model 151 is a haswell's; the flags say alderlake"),
        (
            *("sapphirerapids", "sapphirerapids", ("amx_tile", "amx_int8", "amx_bf16")),
            "model 143 is a sapphirerapids's; a hypervisor hides amx-bf16, amx-int8, amx-tile",
        ),
    ],
)
def test_a_masked_model_number_is_told_in_words(file, guess, without, words):
    seen = recorded(file)
    processor = attrs.evolve(seen, flags=seen.flags - set(without))
    name = closest_cpu_name(processor, guess, X86)
    expected = words.format(masks="a hypervisor masks the model number")
    assert describe_masking(processor, guess, name, X86) == expected


def test_a_model_number_of_arm_is_never_masked():
    processor = recorded("neoverse-v1", "aarch64")
    assert (
        describe_masking(processor, "generic", closest_cpu_name(processor, "generic", ARM), ARM)
        == ""
    )


def test_the_words_about_this_machine_are_those_of_its_processor(monkeypatch):
    if this_processor() is None:
        assert native_masking() == ""
        return
    guess = str(codegen.llvm_get_system_cpu())
    triple = str(codegen.llvm_get_system_triple())
    assert native_masking() == describe_masking(this_processor(), guess, native_name(), triple)


def test_every_feature_is_one_of_llvms():
    for architecture, triple in (("x86_64", X86), ("aarch64", ARM)):
        cpus = {
            "x86_64": ["znver5", "tigerlake", "diamondrapids", "bdver4"],
            "aarch64": ["apple-m4", "olympus"],
        }
        known = frozenset[str]().union(
            *(
                used_features(llvm_target(cpu, triple=triple))
                for cpu in cpus[architecture]
                if codegen.llvm_is_valid_cpu(cpu, triple)
            )
        )
        assert known == frozenset(LINUX_NAMES[architecture])


def test_amx_in_half_precision_is_not_shown_by_the_system():
    assert "amx-fp16" in unreported_features(llvm_target("graniterapids", triple=X86))


def test_this_machine_can_run_what_native_means():
    name = native_name()
    used = used_features(llvm_target(name.mcpu, mattr=frozenset(name.mattr)))
    assert used <= host_features()
    if this_processor() is not None:
        assert used == host_features()


def test_the_names_to_choose_from_are_llvms():
    for names in (*naming._FAMILIES.values(), naming._GENERIC_X86):
        assert all(codegen.llvm_is_valid_cpu(name, X86) for name in names)
    assert all(codegen.llvm_is_valid_cpu(name, ARM) for name in naming._ARM_PARTS.values())
