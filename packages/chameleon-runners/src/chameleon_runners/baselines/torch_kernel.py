"""Kernels that PyTorch runs on a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from chameleon_core.stages import Arrays, Kernel

Tensors = tuple[torch.Tensor, ...]


class TorchKernel(Kernel):
    """A function of tensors with the arguments it is called with.

    Args:
        run: computes the logical output.
        arguments: makes a new copy of the arguments, packed as ``run`` wants them.
        sizes: bytes of each argument.
        constants: places of those that are constants of a network: cold caches are cold for them
            alone. Empty where there are none: then for all arguments.
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
        self._cold_bytes_each = sum(sizes[place] for place in self._cold)
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
        """The arguments with a fresh copy of those that are to be cold."""
        fresh = self._make_arguments()
        pairs = enumerate(zip(fresh, self._copies[0], strict=True))
        return tuple(new if place in self._cold else first for place, (new, first) in pairs)
