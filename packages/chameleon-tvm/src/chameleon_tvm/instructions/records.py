"""The records with which this package registers its instructions: names, CPU features, classes.

Commands such as ``chameleon plugins`` read the records without importing TVM or an instruction.
"""

from __future__ import annotations

from chameleon_core.plugins.records import InstructionRecord

_HERE = "chameleon_tvm.instructions"


def _record(
    name: str, summary: str, factory: str, architecture: str = "", *features: str
) -> InstructionRecord:
    return InstructionRecord(
        name=name,
        summary=summary,
        factory=f"{_HERE}.{factory}",
        architecture=architecture,
        features=features,
    )


_X86, _ARM, _CUDA = "x86_64", "aarch64", "cuda"

INSTRUCTIONS = (
    _record("multiply-add", "float32, on every CPU", "multiply_add:MultiplyAdd"),
    _record(
        "multiply-add-bfloat16-weights",
        "float32, weights stored as bfloat16, on every CPU",
        "multiply_add:Bfloat16Weights",
    ),
    _record(
        "multiply-add-float16-weights",
        "float32, weights stored as float16",
        "multiply_add:Float16Weights",
        *(_X86, "f16c"),
    ),
    _record(
        "vpmaddwd",
        "pairs of 16-bit integers, sums of 32 bits",
        "vpmaddwd:Vpmaddwd",
        *(_X86, "avx2"),
    ),
    _record(
        "vpmaddubsw",
        "groups of four bytes, weights of 7 bits, sums of 32 bits",
        "vpmaddubsw:Vpmaddubsw",
        *(_X86, "avx2"),
    ),
    _record(
        "vpdpbusd",
        "groups of four bytes, unsigned by signed, sums of 32 bits",
        "vpdpbusd:Vpdpbusd",
        *(_X86, "avx512vnni"),
    ),
    _record(
        "vpdpbusd-vex",
        "groups of four bytes, unsigned by signed, without AVX-512",
        "vpdpbusd:VexVpdpbusd",
        *(_X86, "avxvnni"),
    ),
    _record(
        "vdpbf16ps",
        "pairs of bfloat16, sums of float32",
        "vdpbf16ps:Vdpbf16ps",
        *(_X86, "avx512bf16"),
    ),
    _record(
        "vfmadd231ph",
        "float16, sums of float16",
        "multiply_add:Float16MultiplyAdd",
        *(_X86, "avx512fp16"),
    ),
    _record(
        "tdpbf16ps",
        "tiles of 16 x 32 by 32 x 16 bfloat16, sums of float32",
        "amx:AmxBfloat16",
        *(_X86, "amx-tile", "amx-bf16"),
    ),
    _record(
        "tdpfp16ps",
        "tiles of 16 x 32 by 32 x 16 float16, sums of float32",
        "amx:AmxFloat16",
        *(_X86, "amx-tile", "amx-fp16"),
    ),
    _record(
        "tdpbusd",
        "tiles of 16 x 64 by 64 x 16 bytes, unsigned by signed, sums of 32 bits",
        "amx:AmxInt8",
        *(_X86, "amx-tile", "amx-int8"),
    ),
    _record(
        "sdot", "groups of four signed bytes, sums of 32 bits", "neon:Sdot", *(_ARM, "dotprod")
    ),
    _record(
        "usdot",
        "groups of four bytes, unsigned by signed, sums of 32 bits",
        "neon:Usdot",
        *(_ARM, "i8mm"),
    ),
    _record(
        "bfmmla",
        "tiles of 2 x 4 by 4 x 2 bfloat16, sums of float32",
        "neon_tiles:Bfmmla",
        *(_ARM, "bf16"),
    ),
    _record(
        "smmla",
        "tiles of 2 x 8 by 8 x 2 signed bytes, sums of 32 bits",
        "neon_tiles:Smmla",
        *(_ARM, "i8mm"),
    ),
    _record(
        "wmma.f16",
        "fragments of 16 x 16 x 16 float16, sums of float32",
        "fragments:Float16Fragments",
        *(_CUDA, "sm_70"),
    ),
    _record(
        "wmma.bf16",
        "fragments of 16 x 16 x 16 bfloat16, sums of float32",
        "fragments:Bfloat16Fragments",
        *(_CUDA, "sm_80"),
    ),
)
"""The records of this package's instructions. Templates prefer them to those of other
distributions."""
