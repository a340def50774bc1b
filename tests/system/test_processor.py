"""What systems say of their processor, read from recorded texts."""

from chameleon_system._processor import parse_cpuinfo, parse_sysctl, this_processor

HYBRID = """processor\t: 0
BogoMIPS\t: 48.00
Features\t: fp asimd asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd05

processor\t: 1
Features\t: fp asimd asimddp i8mm
CPU implementer\t: 0x41
CPU part\t: 0xd41

Hardware\t: A board
"""

APPLE = """machdep.cpu.brand_string: Apple M2
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.AdvSIMD: 1
"""

INTEL_MAC = """machdep.cpu.vendor: GenuineIntel
machdep.cpu.family: 6
machdep.cpu.model: 158
machdep.cpu.features: FPU SSE3 SSE4.1 AVX1.0 FMA
machdep.cpu.leaf7_features: BMI1 AVX2
machdep.cpu.extfeatures: LZCNT
"""


def test_different_processors_have_what_all_of_them_have():
    result = parse_cpuinfo(HYBRID, "aarch64")
    assert result.flags == {"fp", "asimd", "asimddp"}
    assert (result.vendor, result.model, result.name) == ("0x41", 0xD41, "A board")


def test_the_text_of_another_architecture_says_nothing():
    assert parse_cpuinfo(HYBRID, "x86_64") is None
    assert parse_cpuinfo("", "x86_64") is None
    assert parse_sysctl("", "aarch64") is None


def test_macos_is_read_in_the_words_of_linux():
    assert parse_sysctl(APPLE, "aarch64").flags == {"bf16", "asimddp", "asimd"}
    intel = parse_sysctl(INTEL_MAC, "x86_64")
    assert intel.flags == {"fpu", "pni", "sse4_1", "avx", "fma", "bmi1", "avx2", "abm"}
    assert (intel.vendor, intel.family, intel.model) == ("GenuineIntel", 6, 158)


def test_what_x86_64_v2_has_is_lacking_on_x86_alone():
    assert parse_sysctl(INTEL_MAC, "x86_64").missing_flags == ("ssse3", "sse4_2", "popcnt")
    assert parse_sysctl(APPLE, "aarch64").missing_flags == ()


def test_this_machine_is_read_once():
    assert this_processor() is this_processor()
