"""The records with which this package registers its instructions, without importing TVM."""

from __future__ import annotations

from chameleon_core.plugin_api import InstructionRecord

_HERE = "chameleon_tvm._instructions"


def _record(factory: str, needs: str, summary: str, *, name: str = "") -> InstructionRecord:
    """A record; ``needs`` has the architecture and the features that the instruction needs."""
    architecture, *features = needs.split() or [""]
    return InstructionRecord(
        name=name or factory.partition(":")[2].lower(),
        summary=summary,
        factory=f"{_HERE}.{factory}",
        architecture=architecture,
        features=tuple(features),
    )


INSTRUCTIONS = (
    _record("multiply_add:MultiplyAdd", "", "float32, on every CPU", name="multiply-add"),
    _record(
        "multiply_add:Bfloat16Weights",
        "",
        "float32, weights stored as bfloat16, on every CPU",
        name="multiply-add-bfloat16-weights",
    ),
    _record(
        "multiply_add:Float16Weights",
        "x86_64 f16c",
        "float32, weights stored as float16",
        name="multiply-add-float16-weights",
    ),
    _record("x86:Vpmaddwd", "x86_64 avx2", "pairs of 16-bit integers, sums of 32 bits"),
    _record(
        "x86:Vpmaddubsw",
        "x86_64 avx2",
        "groups of four bytes, weights of 7 bits, sums of 32 bits",
    ),
    _record(
        "x86:Vpdpbusd",
        "x86_64 avx512vnni",
        "groups of four bytes, unsigned by signed, sums of 32 bits",
    ),
    _record(
        "x86:VexVpdpbusd",
        "x86_64 avxvnni",
        "groups of four bytes, unsigned by signed, without AVX-512",
        name="vpdpbusd-vex",
    ),
    _record("x86:Vdpbf16ps", "x86_64 avx512bf16", "pairs of bfloat16, sums of float32"),
    _record(
        "multiply_add:Float16MultiplyAdd",
        "x86_64 avx512fp16",
        "float16, sums of float16",
        name="vfmadd231ph",
    ),
    _record(
        "amx:AmxBfloat16",
        "x86_64 amx-tile amx-bf16",
        "tiles of 16 x 32 by 32 x 16 bfloat16, sums of float32",
        name="tdpbf16ps",
    ),
    _record(
        "amx:AmxFloat16",
        "x86_64 amx-tile amx-fp16",
        "tiles of 16 x 32 by 32 x 16 float16, sums of float32",
        name="tdpfp16ps",
    ),
    _record(
        "amx:AmxInt8",
        "x86_64 amx-tile amx-int8",
        "tiles of 16 x 64 by 64 x 16 bytes, unsigned by signed, sums of 32 bits",
        name="tdpbusd",
    ),
    _record("neon:Sdot", "aarch64 dotprod", "groups of four signed bytes, sums of 32 bits"),
    _record(
        "neon:Usdot",
        "aarch64 i8mm",
        "groups of four bytes, unsigned by signed, sums of 32 bits",
    ),
    _record(
        "neon:Bfmmla",
        "aarch64 bf16",
        "tiles of 2 x 4 by 4 x 2 bfloat16, sums of float32",
    ),
    _record(
        "neon:Smmla",
        "aarch64 i8mm",
        "tiles of 2 x 8 by 8 x 2 signed bytes, sums of 32 bits",
    ),
    _record(
        "fragments:Float16Fragments",
        "cuda sm_70",
        "fragments of 16 x 16 x 16 float16, sums of float32",
        name="wmma.f16",
    ),
    _record(
        "fragments:Bfloat16Fragments",
        "cuda sm_80",
        "fragments of 16 x 16 x 16 bfloat16, sums of float32",
        name="wmma.bf16",
    ),
)
"""The records of this package's instructions. Templates prefer them to those of other
distributions."""
