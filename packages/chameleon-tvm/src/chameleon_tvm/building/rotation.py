"""Copies of a kernel's arguments, which cold timings use in turn."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from chameleon_tvm.late_tvm import tvm

_ALIGNMENT = 64
"""TVM's kernels expect arguments at multiples of this address."""

_UNIT = 1 << 24
"""Blocks have a multiple of so many bytes, so that most fit most kernels."""

_SPARES = 4
_spares: list[tvm.runtime.Tensor] = []
"""Blocks of kernels that are gone. The system takes longer to hand out new memory than the copies
of a kernel's weights take, and a worker gives up as many kernels with each batch."""


def size_of(tensor: tvm.runtime.Tensor) -> int:
    """Number of bytes of a tensor."""
    return math.prod(map(int, tensor.shape)) * np.dtype(str(tensor.dtype)).itemsize


def _view(
    tensor: tvm.runtime.Tensor, shape: Sequence[int], dtype: str, offset: int = 0
) -> tvm.runtime.Tensor:
    """A tensor in the memory of another one, from a number of bytes on."""
    return tensor._create_view(shape, dtype, relative_byte_offset=offset)  # noqa: SLF001 - TVM 0.27


class Rotation:
    """Copies of some arguments of a kernel, side by side in one block of the device's memory.

    Args:
        arguments: All arguments of the kernel.
        cold: Positions of the arguments to copy.
        copies: Number of copies.
        device: The device that holds the arguments.

    Attributes:
        copies: Number of copies.
    """

    def __init__(
        self,
        arguments: Sequence[tvm.runtime.Tensor],
        cold: Sequence[int],
        copies: int,
        device: tvm.runtime.Device,
    ) -> None:
        self.copies = copies
        self._arguments = arguments
        sizes = [size_of(arguments[index]) for index in cold]
        aligned = [math.ceil(size / _ALIGNMENT) * _ALIGNMENT for size in sizes]
        *starts, self._stride = accumulate(aligned, initial=0)
        self._starts = dict(zip(cold, starts, strict=True))
        self._block = _block(copies * self._stride, device)
        weakref.finalize(self, _give_back, self._block)
        pattern = np.zeros(self._stride, np.uint8)
        for (index, start), size in zip(self._starts.items(), sizes, strict=True):
            pattern[start : start + size] = _view(arguments[index], (size,), "uint8").numpy()
        on_host = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        host = np.from_dlpack(self._block) if on_host else np.empty(self._block.shape, np.uint8)
        host[: copies * self._stride].reshape(copies, self._stride)[:] = pattern
        if not on_host:
            self._block.copyfrom(host)
        self._sets: dict[int, list[tvm.runtime.Tensor]] = {}

    def __getitem__(self, copy: int) -> list[tvm.runtime.Tensor]:
        """All arguments, with one of the copies in place of those that were copied."""
        if copy not in self._sets:
            arguments = list(self._arguments)
            for index, start in self._starts.items():
                like = arguments[index]
                offset = copy * self._stride + start
                arguments[index] = _view(self._block, like.shape, str(like.dtype), offset)
            self._sets[copy] = arguments
        return self._sets[copy]


def _block(size: int, device: tvm.runtime.Device) -> tvm.runtime.Tensor:
    """A block of at least ``size`` bytes: a spare one if there is one."""
    for place, spare in enumerate(_spares):
        if size <= size_of(spare) and spare.device == device:
            return _spares.pop(place)
    return tvm.runtime.empty((math.ceil(size / _UNIT) * _UNIT,), "uint8", device)


def _give_back(block: tvm.runtime.Tensor) -> None:
    _spares.append(block)
    del _spares[:-_SPARES]
