"""A builder of PyTorch's oneDNN kernels, one kernel per variant of :mod:`.onednn`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from chameleon_core.plugin_api import Arrays, Builder, Kernel, Task
from chameleon_tvm.api import (
    CONVOLUTIONS,
    BatchMatmulSpec,
    channels_last,
    convolution_of,
    operator_of,
)
from torch.nn import functional

Tensors = tuple[torch.Tensor, ...]


class TorchKernel(Kernel):
    """A kernel that calls a PyTorch function on a CPU.

    Args:
        sizes: The size of each argument in bytes.
    """

    def __init__(
        self,
        run: Callable[..., torch.Tensor],
        arguments: Callable[[], Tensors],
        sizes: Sequence[int],
        constants: Collection[int] = frozenset(),
    ) -> None:
        self._run = run
        self._make_arguments = arguments
        self._cold = frozenset(constants) or frozenset(range(len(sizes)))
        self._cold_bytes_each = sum(sizes[index] for index in self._cold)
        self._copies = [arguments()]
        self._turn = 0

    def outputs(self) -> Arrays:
        with torch.inference_mode():
            return [np.ascontiguousarray(self._run(*self._copies[0]).numpy())]

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        return self.repeats(number, 1, cold_bytes=cold_bytes)[0]

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        # Cold caches: every run takes the next of so many copies that all the others, which
        # are touched in between, push it out.
        each = self._cold_bytes_each
        copies = 1 if each >= cold_bytes else 1 + math.ceil(cold_bytes / each)
        while len(self._copies) < copies:
            self._copies.append(self._copy())
        total = number * count + 1
        sets = [self._copies[(self._turn + run) % copies] for run in range(total)]
        self._turn = (self._turn + total) % copies
        run = self._run
        seconds = []
        with torch.inference_mode():
            # One run outside the clock wakes the threads up.
            run(*sets[0])
            for first in range(1, total, number):
                started = time.perf_counter()
                for arguments in sets[first : first + number]:
                    run(*arguments)
                seconds.append((time.perf_counter() - started) / number)
        return tuple(seconds)

    def _copy(self) -> Tensors:
        """New copies of the arguments that must not be in the caches, with the other arguments."""
        fresh = self._make_arguments()
        pairs = enumerate(zip(fresh, self._copies[0], strict=True))
        return tuple(new if index in self._cold else first for index, (new, first) in pairs)


Run = Callable[..., torch.Tensor]
Pack = Callable[[torch.Tensor, torch.Tensor], Tensors]


class TorchBuilder(Builder):
    """Builds the oneDNN kernel of one variant."""

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
    """PyTorch's function for a task, with a function that prepares its arguments."""
    return _KINDS[task.operator](task, variant)


_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
"""PyTorch's channels-last memory formats by the number of spatial axes."""


def _convolution(task: Task, variant: str) -> tuple[Run, Pack]:
    spec = convolution_of(task)
    rank = spec.rank
    before, after = spec.pads[:rank], spec.pads[rank:]
    # PyTorch pads both sides alike; what differs has to be padded in a step of its own, which
    # a user would have to pay for as well.
    even = before == after
    padding = list(before) if even else [0] * rank
    # Sides of the last axis come first there.
    sides = [side for axis in range(rank - 1, -1, -1) for side in (before[axis], after[axis])]
    stride, dilation, groups = list(spec.strides), list(spec.dilations), spec.group_count
    convolve: Run = getattr(functional, f"conv{rank}d")

    def padded(data: torch.Tensor) -> torch.Tensor:
        return data if even else functional.pad(data, sides)

    def last(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous(memory_format=_LAST[rank])

    def plain(data: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return convolve(padded(data), weights, None, stride, padding, dilation, groups)

    def prepacked(data: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.mkldnn._convolution_pointwise(  # noqa: SLF001 - no other
            padded(data), weights, None, padding, stride, dilation, groups, "none", [], ""
        )
        return result

    def reorder(data: torch.Tensor, weights: torch.Tensor) -> Tensors:
        shape = list(padded(data).shape)
        packed = getattr(torch.ops.aten, f"mkldnn_reorder_conv{rank}d_weight")(
            weights.to_mkldnn(), padding, stride, dilation, groups, shape
        )
        return last(data), packed

    if variant == "packed":
        return prepacked, reorder
    if variant == channels_last(rank).lower():
        return plain, lambda data, weights: (last(data), last(weights))
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
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    "dense": _dense,
    "batch_matmul": _batch_matmul,
}
