"""Builds oneDNN's kernels for a task, one per variant of :mod:`.onednn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from chameleon_core.stages import Arrays, Builder, Kernel
from chameleon_core.task import Task
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.operators.specs import BatchMatmulSpec, Conv2dSpec, DepthwiseConv2dSpec
from torch.nn import functional

from chameleon_runners.baselines.torch_kernel import Tensors, TorchKernel

Run = Callable[..., torch.Tensor]
Pack = Callable[[torch.Tensor, torch.Tensor], Tensors]


class TorchBuilder(Builder):
    """Builds the kernel of one variant.

    Args:
        task: the task; its logical inputs are computed on, in the variant's own layout.
        variant: one of ``onednn.VARIANTS``.
        threads: how many threads PyTorch may use.
    """

    def __init__(self, task: Task, variant: str, *, threads: int) -> None:
        torch.set_num_threads(threads)
        # Starts the pool of threads here, where it may spread over the cores.
        torch.ones(1 << 20).sum()
        self._task = task
        self._variant = variant
        self._operator = operator_of(task)
        self._inputs = self._operator.inputs()

    def build(self, config: Sequence[int]) -> Kernel:
        del config
        run, pack = torch_function(self._task, self._variant)
        inputs = self._inputs

        def arguments() -> Tensors:
            first, second = (torch.from_numpy(array.copy()) for array in inputs)
            return pack(first, second)

        sizes = [array.nbytes for array in inputs]
        return TorchKernel(run, arguments, sizes, self._operator.constants)

    def reference(self) -> tuple[Arrays, float]:
        return self._operator.reference(self._inputs), self._operator.tolerance


def torch_function(task: Task, variant: str) -> tuple[Run, Pack]:
    """PyTorch's function for a task, and what makes its arguments of data and weights."""
    return _KINDS[task.operator](task, variant)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _convolution(task: Task, variant: str) -> tuple[Run, Pack]:
    depthwise = task.operator == DepthwiseConv2dSpec.kind
    spec = DepthwiseConv2dSpec.of(task) if depthwise else Conv2dSpec.of(task)
    top, left, bottom, right = spec.pads
    # PyTorch pads both sides alike; what differs has to be padded in a step of its own, which
    # a user would have to pay for as well.
    even = (top, left) == (bottom, right)
    padding = [top, left] if even else [0, 0]
    stride, dilation, groups = list(spec.strides), list(spec.dilations), spec.group_count

    def padded(data: torch.Tensor) -> torch.Tensor:
        return data if even else functional.pad(data, (left, right, top, bottom))

    def plain(data: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(padded(data), weights, None, stride, padding, dilation, groups)

    def prepacked(data: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.mkldnn._convolution_pointwise(  # noqa: SLF001 - no other
            padded(data), weights, None, padding, stride, dilation, groups, "none", [], ""
        )
        return result

    def reorder(data: torch.Tensor, weights: torch.Tensor) -> Tensors:
        shape = list(padded(data).shape)
        packed = torch.ops.aten.mkldnn_reorder_conv2d_weight(
            weights.to_mkldnn(), padding, stride, dilation, groups, shape
        )
        return _channels_last(data), packed

    if variant == "packed":
        return prepacked, reorder
    if variant == "nhwc":
        return plain, lambda data, weights: (_channels_last(data), _channels_last(weights))
    return plain, lambda data, weights: (data, weights)


def _dense(task: Task, variant: str) -> tuple[Run, Pack]:
    del task

    def prepacked(data: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - no other
            data, weights, None, "none", [], ""
        )
        return result

    def reorder(data: torch.Tensor, weights: torch.Tensor) -> Tensors:
        return data, torch.ops.mkldnn._reorder_linear_weight(weights, len(data))  # noqa: SLF001

    if variant == "packed":
        return prepacked, reorder
    return functional.linear, lambda data, weights: (data, weights)


def _batch_matmul(task: Task, variant: str) -> tuple[Run, Pack]:
    del variant
    transposed = BatchMatmulSpec.of(task).transpose_b

    def pack(left: torch.Tensor, right: torch.Tensor) -> Tensors:
        return left, right.transpose(1, 2) if transposed else right

    return torch.bmm, pack


_KINDS: dict[str, Callable[[Task, str], tuple[Run, Pack]]] = {
    "conv2d": _convolution,
    "depthwise_conv2d": _convolution,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
}
