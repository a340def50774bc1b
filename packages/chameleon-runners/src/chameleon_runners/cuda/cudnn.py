"""NVIDIA's cuDNN and cuBLAS, called through PyTorch: the vendor's kernels on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Baseline, Builder
from chameleon_core.task import Task

from chameleon_runners.baselines import onednn
from chameleon_runners.baselines.onednn import kind_of
from chameleon_runners.cuda.vendor import VendorBuilder

VARIANTS: dict[str, tuple[str, ...]] = {
    "conv2d": ("nchw", "nhwc"),
    "depthwise_conv2d": ("nchw", "nhwc"),
    "dense": ("linear",),
    "batch_matmul": ("bmm",),
}
"""Ways to compute each kind of operator (``Task.operator``)."""


class CudnnBaseline(Baseline):
    """cuDNN (products: cuBLAS) in each of its layouts, whatever layout the task has.

    The algorithm is the fastest that cuDNN finds, and float32 is float32: TF32 is off. If
    PyTorch has no CUDA, the contender fails and says so; it never just goes missing.
    """

    def __init__(self, options: NoOptions) -> None:
        del options

    def supports(self, task: Task) -> bool:
        """Whether it is a plain convolution or product on a GPU."""
        return _is_plain(task) and kind_of(task) == "cuda"

    def variants(self, task: Task) -> Sequence[str]:
        return VARIANTS[task.operator]

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        return VendorBuilder(task, variant, threads=threads)


class StandInBaseline(CudnnBaseline):
    """oneDNN by the way that cuDNN's kernels go: for a CPU that stands in for a GPU."""

    def supports(self, task: Task) -> bool:
        """Whether it is a plain convolution or product on a CPU."""
        return _is_plain(task) and kind_of(task) == "llvm"

    def variants(self, task: Task) -> Sequence[str]:
        return onednn.VARIANTS[task.operator]


def _is_plain(task: Task) -> bool:
    return task.operator in VARIANTS and onednn.EPILOGUE.isdisjoint(task.arguments)
