"""Copies of a kernel's arguments, which cold timings use in turn."""

from __future__ import annotations

import ctypes
import math
import resource
import weakref
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from chameleon_tvm._late_tvm import tvm

ALIGNMENT = 64
"""TVM's kernels expect arguments at multiples of this address."""

_GRANULARITY = 1 << 24
"""Blocks have a multiple of so many bytes, so that most fit most kernels."""

_MAX_FREE_BLOCKS, _FREE_SHARE = 4, 8
"""The most blocks that are kept, and the part of a process's memory limit that they may take."""

_free_blocks: list[tvm.runtime.Tensor] = []
"""Blocks of kernels that were freed, for reuse. To get new memory from the system takes longer than
to copy a kernel's weights."""


def size_of(tensor: tvm.runtime.Tensor) -> int:
    """Number of bytes of a tensor."""
    return math.prod(map(int, tensor.shape)) * np.dtype(str(tensor.dtype)).itemsize


def _padded(content: bytes) -> bytes:
    """The content of an argument, with zeros up to where the next one may begin."""
    return content.ljust(math.ceil(len(content) / ALIGNMENT) * ALIGNMENT, b"\0")


class Rotation:
    """Copies of some arguments of a kernel, side by side in one block of the device's memory."""

    def __init__(
        self,
        arguments: Sequence[tvm.runtime.Tensor],
        cold: Sequence[int],
        copies: int,
        device: tvm.runtime.Device,
    ) -> None:
        self.copies = copies
        self._arguments = arguments
        contents = [_padded(arguments[index].numpy().tobytes()) for index in cold]
        *starts, self._stride = accumulate(map(len, contents), initial=0)
        self._starts = dict(zip(cold, starts, strict=True))
        self._block = _block(copies * self._stride, device)
        weakref.finalize(self, _recycle, self._block)
        pattern = np.frombuffer(b"".join(contents), np.float32)
        on_host = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        host = np.empty(0 if on_host else self._block.shape, np.float32)
        if on_host:
            # NumPy below 2.2 gives no array that can be written.
            address = np.from_dlpack(self._block).ctypes.data
            memory = (ctypes.c_float * self._block.shape[0]).from_address(address)
            host = np.frombuffer(memory, np.float32)
        host[: copies * pattern.size].reshape(copies, pattern.size)[:] = pattern
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
                arguments[index] = self._block._create_view(  # noqa: SLF001 - no public name
                    like.shape, str(like.dtype), relative_byte_offset=offset
                )
            self._sets[copy] = arguments
        return self._sets[copy]


def _block(size: int, device: tvm.runtime.Device) -> tvm.runtime.Tensor:
    """A block of at least ``size`` bytes: a free one if there is one."""
    for position, block in enumerate(_free_blocks):
        if size <= size_of(block) and block.device == device:
            return _free_blocks.pop(position)
    return tvm.runtime.empty(
        (math.ceil(size / _GRANULARITY) * _GRANULARITY // 4,), "float32", device
    )


def _recycle(block: tvm.runtime.Tensor) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    total = sum(map(size_of, (*_free_blocks, block)))
    if limit == resource.RLIM_INFINITY or _FREE_SHARE * total <= limit:
        _free_blocks.append(block)
        del _free_blocks[:-_MAX_FREE_BLOCKS]
