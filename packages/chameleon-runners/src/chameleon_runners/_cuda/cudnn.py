"""The baseline ``cudnn``: NVIDIA's cuDNN and cuBLAS on a GPU, called through PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_core.plugin_api import Baseline, Builder, NoOptions, Task

from chameleon_runners._baselines import onednn
from chameleon_runners._baselines.onednn import kind_of
from chameleon_runners._cuda.vendor import VendorBuilder

VARIANTS: dict[str, tuple[str, ...]] = {
    "conv2d": ("nchw", "nhwc"),
    "depthwise_conv2d": ("nchw", "nhwc"),
    "dense": ("linear",),
    "batch_matmul": ("bmm",),
}
"""The variants of each kind of operator (``Task.operator``)."""


class CudnnBaseline(Baseline):
    """Kernels of NVIDIA's cuDNN and cuBLAS as a baseline, of which the fastest layout counts.

    TF32 is off, so float32 keeps its precision.
    """

    def __init__(self, options: NoOptions) -> None:
        del options

    def supports(self, task: Task) -> bool:
        """Whether the task is a convolution or matrix product without epilogue, on a GPU."""
        return _is_plain(task) and kind_of(task.target) == "cuda"

    def variants(self, task: Task) -> Sequence[str]:
        return VARIANTS[task.operator]

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        return VendorBuilder(task, variant, threads=threads)


class StandInBaseline(CudnnBaseline):
    """Runs oneDNN on a CPU with the code of the cuDNN baseline, to test it without a GPU."""

    def supports(self, task: Task) -> bool:
        """Whether the task is a convolution or matrix product without epilogue, on a CPU."""
        return _is_plain(task) and kind_of(task.target) == "llvm"

    def variants(self, task: Task) -> Sequence[str]:
        return onednn.VARIANTS[task.operator]


def _is_plain(task: Task) -> bool:
    return task.operator in VARIANTS and onednn.EPILOGUE.isdisjoint(task.arguments)
