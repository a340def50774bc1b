"""The records with which this package registers its templates, without importing TVM."""

from __future__ import annotations

from chameleon_core.plugin_api import TemplateRecord

_CPU = "chameleon_tvm._spaces.template"
_GPU = "chameleon_tvm._spaces.cuda"


def _record(
    name: str, summary: str, factory: str, *operators: str, target: str = "llvm"
) -> TemplateRecord:
    return TemplateRecord(
        name=name, summary=summary, operators=operators, targets=(target,), factory=factory
    )


TEMPLATES = (
    _record(
        "convolution",
        "Convolutions of any rank, direct or Winograd's, weights packed beforehand",
        f"{_CPU}.convolution:ConvolutionTemplate",
        *("conv1d", "conv2d", "conv3d"),
    ),
    _record(
        "depthwise",
        "Convolutions of every channel, channels in vectors",
        f"{_CPU}.depthwise:DepthwiseTemplate",
        *("depthwise_conv1d", "depthwise_conv2d", "depthwise_conv3d"),
    ),
    _record(
        "dense",
        "Matrix products with weights packed beforehand",
        f"{_CPU}.matmul:DenseTemplate",
        "dense",
    ),
    _record(
        "batch-matmul",
        "Matrix products whose right side the function packs itself",
        f"{_CPU}.matmul:BatchMatmulTemplate",
        "batch_matmul",
    ),
    _record(
        "loops",
        "Rows, threads and columns of a network's other loops",
        "chameleon_tvm._spaces.loops.template:LoopTemplate",
        "loops",
    ),
    _record(
        "attention",
        "Attention in blocks of queries and keys, scores never stored",
        f"{_CPU}.attention:AttentionTemplate",
        "attention",
    ),
    _record(
        "convolution-cuda",
        "Direct convolutions; in half precision implicit products on tensor cores",
        f"{_GPU}.convolution:convolution_template",
        "conv2d",
        target="cuda",
    ),
    _record(
        "depthwise-cuda",
        "Convolutions of every channel, tiled for blocks and threads",
        f"{_GPU}.convolution:DepthwiseTemplate",
        "depthwise_conv2d",
        target="cuda",
    ),
    _record(
        "dense-cuda",
        "Matrix products with constant weights, half precision on tensor cores",
        f"{_GPU}.tensor_core:product_template",
        "dense",
        target="cuda",
    ),
    _record(
        "batch-matmul-cuda",
        "Matrix products neither side of which is constant, half precision on tensor cores",
        f"{_GPU}.tensor_core:product_template",
        "batch_matmul",
        target="cuda",
    ),
)
"""The records of this package's templates. The space ``template`` chooses from these and from the
templates of other distributions."""
