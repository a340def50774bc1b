"""Arrays on a device, cached from one candidate to the next."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np

from chameleon_tvm._building.remote.artifact import Argument, load_input
from chameleon_tvm._late_tvm import tvm


class DeviceBuffers:
    """Keeps inputs on a device, by the digest of each, so that none is sent there twice.

    Args:
        device: The device that holds the arrays.
        most_bytes: Bytes to keep at most. Arrays that were not used for the longest time are
            dropped first; the device frees their memory when no kernel uses them.

    Attributes:
        sent: Number of inputs sent so far.
    """

    def __init__(self, device: tvm.runtime.Device, most_bytes: int) -> None:
        self._device = device
        self._max_bytes = most_bytes
        self._cache: OrderedDict[str, tuple[tvm.runtime.Tensor, int]] = OrderedDict()
        self._bytes = 0
        self.sent = 0

    def input(self, argument: Argument, folder: Path) -> tvm.runtime.Tensor:
        """The input of an artifact as an array on the device.

        It is read from the artifact's folder only if the device does not have it yet.

        Args:
            argument: The description of the input.
            folder: The folder of the artifact.
        """
        tensor = self._cached(argument.digest)
        if tensor is None:
            array = load_input(folder, argument)
            tensor = tvm.runtime.tensor(array, device=self._device)
            self.sent += 1
            self._add(argument.digest, tensor, array.nbytes)
        return tensor

    def output(self, argument: Argument) -> tvm.runtime.Tensor:
        """Make an output on the device, filled with zeros.

        So a kernel that leaves elements unwritten always fails in the same way.

        Args:
            argument: The description of the output.
        """
        key = f"zeros {argument.dtype} {argument.shape}"
        zeros = self._cached(key)
        if zeros is None:
            array = np.zeros(argument.shape, argument.dtype)
            zeros = tvm.runtime.tensor(array, device=self._device)
            self._add(key, zeros, array.nbytes)
        tensor = tvm.runtime.empty(argument.shape, argument.dtype, device=self._device)
        zeros.copyto(tensor)
        return tensor

    def _cached(self, key: str) -> tvm.runtime.Tensor | None:
        if key not in self._cache:
            return None
        self._cache.move_to_end(key)
        return self._cache[key][0]

    def _add(self, key: str, tensor: tvm.runtime.Tensor, size: int) -> None:
        self._cache[key] = tensor, size
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._cache) > 1:
            _, (_, size_of_oldest) = self._cache.popitem(last=False)
            self._bytes -= size_of_oldest
