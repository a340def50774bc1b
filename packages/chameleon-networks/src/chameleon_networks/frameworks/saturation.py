"""Whether sums of products of eight bits saturate on this machine."""

from __future__ import annotations

from chameleon_system.processor import this_processor

_VNNI = {"avx512_vnni", "avx_vnni"}
"""Linux' names of instructions that add products of eight bits in 32 bits."""


def sums_saturate() -> bool:
    """Whether int8 convolutions of frameworks add pairs of products in 16 bits, which saturate.

    On x86 before VNNI they use ``vpmaddubsw``, so that weights of 7 bits are advised: ONNX
    Runtime, Quantize ONNX models, "When and why do I need to try U8U8"
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html); OpenVINO, the
    saturation issue of 8-bit instructions (its post-training tools' SaturationIssue.md).
    """
    processor = this_processor()
    if processor is None or processor.architecture != "x86_64":
        return False
    return not processor.flags & _VNNI
