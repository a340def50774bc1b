"""Kernels of NVIDIA's cuDNN and cuBLAS, timed by CUDA events in the same way as TVM's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from chameleon_core.plugin_api import Arrays, Kernel, Task
from chameleon_tvm.api import BFLOAT16, operator_of
from numpy.typing import NDArray

from chameleon_runners._baselines.torch_builder import torch_function

_MILLISECOND = 1e-3


def cudnn_kernel(task: Task, variant: str, index: int) -> CudnnKernel:
    """The kernel of NVIDIA's library that computes a task on a GPU, through PyTorch."""
    _require_cuda()
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    run, pack = torch_function(task, variant)
    device = torch.device("cuda", index)
    with torch.cuda.device(device), torch.inference_mode():
        first, second = (on_device(array, device) for array in operator_of(task).inputs())
        arguments = pack(first, second)
    return CudnnKernel(lambda: run(*arguments), device)


def _require_cuda() -> None:
    if torch.version.cuda is None:
        raise RuntimeError(
            f"PyTorch {torch.__version__} here was built without CUDA, so cuDNN cannot be called; "
            "install one of the builds for CUDA"
        )
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no usable GPU: its driver may be too old, see nvidia-smi")
    if not torch.backends.cudnn.is_available():
        raise RuntimeError("PyTorch finds no cuDNN here")


def on_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy a NumPy array, also of bfloat16, to a PyTorch device."""
    array = np.ascontiguousarray(array)
    if array.dtype.name == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(getattr(torch, BFLOAT16)).to(device)
    return torch.from_numpy(array).to(device)


class CudnnKernel(Kernel):
    """A kernel that calls a PyTorch function on a GPU."""

    def __init__(self, run: Callable[[], torch.Tensor], device: torch.device) -> None:
        self._run = run
        self._device = device
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._flush: tuple[torch.Tensor, torch.Tensor] | None = None

    def outputs(self) -> Arrays:
        with torch.cuda.device(self._device), torch.inference_mode():
            output = self._run()
            if output.dtype is not torch.float32:
                output = output.float()
            return [np.ascontiguousarray(output.cpu().numpy())]

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        return self.repeats(number, 1, cold_bytes=cold_bytes)[0]

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        """Time ``count`` repeats with CUDA events, as TVM's evaluator does."""
        runs, rounds = (1, number * count) if cold_bytes else (number, count)
        with torch.cuda.device(self._device), torch.inference_mode():
            self._graph(runs).replay()
            singles = [self._between_events(runs, cold_bytes) for _ in range(rounds)]
        each = rounds // count
        return tuple(
            math.fsum(singles[first : first + each]) / each for first in range(0, rounds, each)
        )

    def _between_events(self, runs: int, cold_bytes: int) -> float:
        """Mean seconds of consecutive runs, measured by the GPU's clock."""
        graph = self._graph(runs)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        if cold_bytes:
            # While the GPU copies, the CPU launches the graph.
            source, copy = self._flushed(cold_bytes)
            copy.copy_(source)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * _MILLISECOND / runs

    def _graph(self, runs: int) -> torch.cuda.CUDAGraph:
        """A CUDA graph of consecutive runs, so that PyTorch's own work on the CPU is not timed."""
        if runs not in self._graphs:
            self._run()  # cuDNN chooses its algorithm
            graph = torch.cuda.CUDAGraph()
            # TVM shares the process, and may free memory meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                for _ in range(runs):
                    self._run()
            self._graphs[runs] = graph
        return self._graphs[runs]

    def _flushed(self, cold_bytes: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._flush is None or self._flush[0].numel() != cold_bytes:
            source = torch.zeros(cold_bytes, dtype=torch.uint8, device=self._device)
            self._flush = source, torch.empty_like(source)
        return self._flush
