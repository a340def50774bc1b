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
    AttentionSpec,
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
        run: computes the operator's output.
        arguments: returns new copies of the arguments, in the layout that ``run`` needs.
        sizes: the size of each argument in bytes.
        constants: indices of arguments that come from memory if caches are cold; all if empty.
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
        self._cold_bytes_per_copy = sum(sizes[index] for index in self._cold)
        self._copies = [arguments()]
        self._next_copy = 0

    def outputs(self) -> Arrays:
        with torch.inference_mode():
            return [np.ascontiguousarray(self._run(*self._copies[0]).numpy())]

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        return self.repeats(number, 1, cold_bytes=cold_bytes)[0]

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        # Cold caches: runs use copies in turn, which evict each other from the caches.
        each = self._cold_bytes_per_copy
        copies = 1 if each >= cold_bytes else 1 + math.ceil(cold_bytes / each)
        while len(self._copies) < copies:
            self._copies.append(self._copy())
        total = number * count + 1
        sets = [self._copies[(self._next_copy + run) % copies] for run in range(total)]
        self._next_copy = (self._next_copy + total) % copies
        run = self._run
        seconds = []
        with torch.inference_mode():
            # An untimed run wakes up the threads.
            run(*sets[0])
            for first in range(1, total, number):
                started = time.perf_counter()
                for arguments in sets[first : first + number]:
                    run(*arguments)
                seconds.append((time.perf_counter() - started) / number)
        return tuple(seconds)

    def _copy(self) -> Tensors:
        """New copies of the arguments that must not be in the caches, with the other arguments."""
        copies = self._make_arguments()
        pairs = enumerate(zip(copies, self._copies[0], strict=True))
        return tuple(new if index in self._cold else first for index, (new, first) in pairs)


Run = Callable[..., torch.Tensor]
Pack = Callable[..., Tensors]


class TorchBuilder(Builder):
    """Builds the oneDNN kernel of one variant."""

    def __init__(self, task: Task, variant: str, *, threads: int) -> None:
        torch.set_num_threads(threads)
        # Start the thread pool now, while this process may use every core.
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
            return pack(*(torch.from_numpy(array.copy()) for array in inputs))

        sizes = [array.nbytes for array in inputs]
        return TorchKernel(run, arguments, sizes, self._operator.constants)

    def reference(self) -> tuple[Arrays, float]:
        return self._operator.reference(self._inputs), self._operator.tolerance


def torch_function(task: Task, variant: str) -> tuple[Run, Pack]:
    """PyTorch's function for a task, and the function that prepares its arguments."""
    return _KINDS[task.operator](task, variant)


_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
"""PyTorch's channels-last memory formats by the number of spatial axes."""


def _convolution(task: Task, variant: str) -> tuple[Run, Pack]:
    spec = convolution_of(task)
    rank = spec.rank
    before, after = spec.pads[:rank], spec.pads[rank:]
    # PyTorch pads both sides equally, so other padding is a separate step, as for any user.
    even = before == after
    padding = list(before) if even else [0] * rank
    # ``pad`` takes the sides of the last axis first.
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
        result: torch.Tensor = torch.ops.mkldnn._convolution_pointwise(  # noqa: SLF001 - no public name
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
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - no public name
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


def _attention(task: Task, variant: str) -> tuple[Run, Pack]:
    del variant
    spec = AttentionSpec.of(task)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=spec.causal, scale=spec.scale
        )

    return attend, lambda query, key, value: (query, key, value)


_KINDS: dict[str, Callable[[Task, str], tuple[Run, Pack]]] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "attention": _attention,
}
