"""Kinds of CPUs, from descriptions: what `native` is there, and kernels of first guesses."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from chameleon_system._permissions import AMX, request_permission
from chameleon_system._processor import own_architecture, parse_cpuinfo, parse_sysctl
from chameleon_tvm._device import targets
from chameleon_tvm._device.cpus import naming
from chameleon_tvm._device.cpus.features import (
    reported_features,
    target_features,
    target_without,
    unreported_features,
    used_features,
)
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.template.arithmetic import describe_arithmetic
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from computing import NATIVE, require_reference, resolved

LINUX, ARM, MAC = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin"


class Kind(NamedTuple):
    """What is expected on a CPU of a description.

    ``guess`` is LLVM's name for its model number, and ``name`` the one that fits its flags. The
    products are those of float32, float16, bfloat16, int8, and of int7 if they pay.
    """

    file: str
    guess: str
    name: str
    products: tuple[str, ...]
    triple: str = LINUX
    hidden: frozenset[str] = frozenset()
    """Features of the name that no flag shows: the model number alone tells of them."""
    missing_flags: tuple[str, ...] = ()

    @property
    def processor(self):
        text = Path(__file__).with_name("cpuinfo").joinpath(self.file).read_text()
        read = parse_sysctl if self.triple == MAC else parse_cpuinfo
        return read(text, "x86_64" if self.triple == LINUX else "aarch64")


def wide(vectors, integers, *more):
    """Products of a CPU that multiplies in float32 for want of others."""
    half = f"{vectors} of float32"
    return (vectors, half, half, integers, *more)


AVX2, AVX512, NEON = "avx2 FMA", "avx512f FMA", "neon FMA"
ZEN4 = (AVX512, f"{AVX512} of float32", "vdpbf16ps", "vpdpbusd")
SAPPHIRE = (*ZEN4[:2], "tdpbf16ps tiles, vdpbf16ps", "tdpbusd tiles, vpdpbusd")
GRANITE = (AVX512, f"tdpfp16ps tiles, {ZEN4[1]}", *SAPPHIRE[2:])
NEOVERSE = (NEON, f"{NEON} of float32", f"bfmmla tiles, {NEON} of float32", "usdot")
SSE2 = wide("sse2 multiply and add", "sse2 32-bit integers")
SSE4 = ("sse4_1", "sse4_2", "popcnt")
KINDS = (
    Kind("qemu64", "k8-sse3", "k8-sse3", SSE2, missing_flags=("ssse3", *SSE4)),
    Kind("core2", "core2", "core2", SSE2, missing_flags=SSE4),
    Kind("haswell", "haswell", "haswell", wide(AVX2, "vpmaddwd", "vpmaddubsw")),
    Kind("zen2", "znver2", "znver2", wide(AVX2, "vpmaddwd", "vpmaddubsw")),
    Kind("zen3", "znver3", "znver3", wide(AVX2, "vpmaddwd", "vpmaddubsw")),
    Kind("alderlake", "alderlake", "alderlake", wide(AVX2, "vpdpbusd-vex")),
    Kind(
        "skylake-avx512", "skylake-avx512", "skylake-avx512",
        wide(AVX512, "vpmaddwd", "vpmaddubsw"),
    ),
    Kind("cascadelake", "cascadelake", "cascadelake", wide(AVX512, "vpdpbusd")),
    Kind("icelake-server", "icelake-server", "icelake-server", wide(AVX512, "vpdpbusd")),
    Kind("zen4", "znver4", "znver4", ZEN4),
    Kind("zen5", "znver5", "znver5", ZEN4),
    Kind("sapphirerapids", "sapphirerapids", "sapphirerapids", SAPPHIRE),
    Kind("graniterapids-guest", "rocketlake", "sapphirerapids", SAPPHIRE),
    Kind(
        "graniterapids", "graniterapids", "graniterapids", GRANITE, hidden=frozenset({"amx-fp16"})
    ),
    Kind("neoverse-v1", "neoverse-v1", "neoverse-v1", NEOVERSE, ARM),
    Kind(
        "neoverse-v2", "neoverse-v2", "neoverse-v2", NEOVERSE, ARM,
        hidden=frozenset({"sve-bitperm"}),
    ),
    Kind(
        "apple-m4", "apple-m4", "apple-m4", NEOVERSE, MAC,
        hidden=frozenset({"sme-f64f64", "sme-i16i64"}),
    ),
)  # fmt: skip
TARGETS = {
    kind.file: f"llvm -mtriple={kind.triple} -mcpu={kind.name} -num-cores=2" for kind in KINDS
}
EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.file)
TYPES = ("float32", "float16", "bfloat16", "int8", "int7")

SPACE = AutoSpace(AutoOptions())
MAPS = {"input": [1, 64, 9, 9], "kernel": 3, "padding": 1, "layout": "NHWC"}
OPERATORS = {
    "conv2d": lambda dtype: Conv2dSpec(filters=64, stride=2, dtype=dtype, **MAPS),
    "dense": lambda dtype: DenseSpec(input=[16, 64], units=64, dtype=dtype),
    "batch_matmul": lambda dtype: BatchMatmulSpec(a=[2, 16, 64], b=[2, 64, 32], dtype=dtype),
    "depthwise": lambda dtype: DepthwiseConv2dSpec(dtype=dtype, **MAPS),
}


@EACH
def test_native_is_what_the_flags_allow_and_nothing_more(kind, monkeypatch, tmp_path):
    processor = kind.processor
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(naming, "this_processor", lambda: processor)
    monkeypatch.setattr(naming.codegen, "llvm_get_system_cpu", lambda: kind.guess)
    monkeypatch.setattr(naming.codegen, "llvm_get_system_triple", lambda: kind.triple)
    monkeypatch.setattr(targets, "own_architecture", lambda: processor.architecture)
    naming.native_name.cache_clear()
    try:
        target = resolved(f"llvm -mtriple={kind.triple} -mcpu=native -num-cores=2")
    finally:
        naming.native_name.cache_clear()
    assert target == resolved(TARGETS[kind.file])
    assert used_features(tvm_target(target)) == reported_features(processor)
    assert unreported_features(tvm_target(target)) == kind.hidden
    assert processor.missing_flags == kind.missing_flags


@EACH
def test_products_are_those_that_the_flags_allow(kind):
    expected = dict(zip(TYPES, kind.products, strict=False))
    assert describe_arithmetic(resolved(TARGETS[kind.file])) == expected


@EACH
def test_first_guesses_are_legal(kind):
    for spec in OPERATORS.values():
        for dtype in ("float32", "bfloat16", "int8"):
            space = SPACE.design_space(spec(dtype).task("t", resolved(TARGETS[kind.file])))
            assert len(space.first_guesses), dtype
            assert space.legal(space.first_guesses).all(), dtype


@cache
def guess_of(operator, dtype, target):
    """The builder of an operator and its first guess; kinds share what has the same target."""
    builder = SPACE.builder(OPERATORS[operator](dtype).task("t", target), threads=2)
    return builder, builder.space.first_guesses[0].tolist()


@cache
def assembly_of(operator, dtype, target):
    builder, guess = guess_of(operator, dtype, target)
    return builder.listings(guess)["assembly.s"]


FLAGS = {
    r"%ymm": "avx",
    r"%zmm|\{%k": "avx512f",
    r"\tvfn?m(add|sub)": "fma",
    r"\tv?(pmulld|pmovzx|pmovsx)": "sse4_1",
    r"\tv?(pshufb|pmaddubsw|phadd)": "ssse3",
    r"\tvcvtph2ps": "f16c",
    r"\tvdpbf16ps": "avx512_bf16",
    r"(?<!\{vex\})\tvpdp(busd|wssd)": "avx512_vnni",
    r"\{vex\}\tvpdp(busd|wssd)": "avx_vnni",
    r"\ttdpbf16ps": "amx_bf16",
    r"\ttdpfp16ps": "amx_fp16",
    r"\ttdpbusd": "amx_int8",
    r"\ttile": "amx_tile",
    r"\tbfmmla": "bf16",
    r"\t(us|s|u)mmla|\tusdot": "i8mm",
    r"\t(s|u)dot": "asimddp",
    r"\tptrue|\bz\d+\.": "sve",
}
"""Instructions and registers in assembly, and the flag that each needs."""

COMPILED = [("conv2d", dtype) for dtype in ("float32", "bfloat16", "int8")]
COMPILED += [("dense", dtype) for dtype in ("float32", "bfloat16", "int8")]
REST = [(name, dtype) for name in OPERATORS for dtype in TYPES[:4] if (name, dtype) not in COMPILED]
REST = [pytest.param(*row, marks=pytest.mark.long) for row in REST]
KERNELS = pytest.mark.parametrize(("operator", "dtype"), [*COMPILED, *REST])


@pytest.mark.full
@KERNELS
@EACH
def test_kernels_have_instructions_that_the_flags_allow(kind, operator, dtype):
    text = assembly_of(operator, dtype, resolved(TARGETS[kind.file]))
    flags = kind.processor.flags | {feature.replace("-", "_") for feature in kind.hidden}
    needed = {flag for pattern, flag in FLAGS.items() if re.search(pattern, text)}
    assert needed <= flags
    if operator not in {"conv2d", "dense"}:
        return
    if dtype == "float32":
        widest = [flag for flag in ("avx512f", "avx") if flag in flags][:1]
        assert needed.issuperset(widest)
    first = kind.products[TYPES.index(dtype)].partition(",")[0].split()[0]
    if first not in {"avx512f", "avx2", "sse2", "neon"}:
        assert re.search(rf"\t{first.partition('-')[0]}\b", text)


def runs_here(target):
    """Whether this machine has all vector instructions of a target that are known to be there."""
    if own_architecture() != "x86_64":
        return False
    wanted, own = (tvm_target(one) for one in (target, NATIVE))
    if not used_features(wanted) | unreported_features(wanted) <= target_features(own):
        return False
    return "amx-tile" not in used_features(wanted) or not request_permission(AMX)


def test_code_without_tiles_runs_on_cpus_of_amd():
    target = resolved(f"llvm -mtriple={LINUX} -mcpu=sapphirerapids -mattr=+avx512f -num-cores=2")
    own = used_features(tvm_target(target))
    tiles = {"amx-bf16", "amx-int8", "amx-tile"}
    without = used_features(tvm_target(target_without(target, {AMX}, float32=False)))
    assert own - without == tiles
    narrow = used_features(tvm_target(target_without(target, {AMX}, float32=True)))
    zen4 = used_features(tvm_target(resolved(f"llvm -mtriple={LINUX} -mcpu=znver4")))
    assert "avx512f" in narrow
    assert narrow <= zen4


@pytest.mark.full
@KERNELS
@pytest.mark.parametrize(
    "name", sorted({kind.name for kind in KINDS if runs_here(resolved(TARGETS[kind.file]))})
)
def test_kernels_of_cpus_with_less_are_right_here(name, operator, dtype):
    target = resolved(f"llvm -mtriple={LINUX} -mcpu={name} -num-cores=2")
    builder, guess = guess_of(operator, dtype, target)
    require_reference(builder, [guess])
