"""Checks of the arguments, the weights and the answers of graphs of ``torch.compile``."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from chameleon_networks.backends import StaysError
from chameleon_networks.running.verify import TOLERANCE, agreement

_SAMPLES = 8
"""How many numbers of each weight a call compares, to notice changes that autograd does not."""


def reason_to_stay(example_inputs: Sequence[Any]) -> str | None:
    """The reason why no network can compute a graph with such arguments, or None.

    Args:
        example_inputs: The arguments with which torch traced the graph.
    """
    if any(isinstance(value, torch.SymInt) for value in example_inputs):
        return "a size is left open; torch.compile(..., dynamic=False) gives a network per size"
    if not all(type(value) in {Tensor, nn.Parameter} for value in example_inputs):
        return "an argument is no plain tensor"
    if any(value.device.type != "cpu" for value in example_inputs):
        return "it computes on another device than the CPU"
    if torch.is_grad_enabled() and any(value.requires_grad for value in example_inputs):
        return "gradients are wanted; call the model under torch.inference_mode() for a network"
    return None


def is_weight(value: Tensor) -> bool:
    """Whether an argument is a parameter or buffer of a module; torch marks these as static.

    A tensor that a module made in inference mode, such as a bias that it keeps for later calls, is
    an input, because torch does not count its changes.

    Args:
        value: The argument.
    """
    marked = hasattr(value, "_dynamo_static_input_type") and not value.is_inference()
    return isinstance(value, nn.Parameter) or marked


def check_answer(answer: Sequence[Any], inputs: Sequence[Tensor]) -> None:
    """Check that a network can return such an answer to a call.

    Args:
        answer: The outputs of torch's code that the network is to compute.
        inputs: The arguments of the call, without weights.

    Raises:
        StaysError: No network can return such an answer.
    """
    if torch.is_autocast_enabled("cpu"):
        raise StaysError("torch.autocast is on, whose dtypes a network does not have")
    if not all(isinstance(value, Tensor) for value in answer):
        raise StaysError("an output is no tensor")
    if any(value.requires_grad for value in answer):
        raise StaysError("gradients of an output are wanted")
    if not all(value.numel() for value in (*answer, *inputs)):
        raise StaysError("an input or output is empty")
    for value in (*answer, *inputs):
        if value.is_floating_point() and value.element_size() < torch.float32.itemsize:
            raise StaysError(f"an input or output is in {str(value.dtype)[6:]}")
        value.detach().numpy()  # raises TypeError if NumPy lacks the dtype


def check_outputs(outputs: Sequence[Tensor], answer: Sequence[Tensor]) -> None:
    """Check that a network's outputs are torch's.

    Args:
        outputs: The outputs of the network.
        answer: The outputs of torch's code.

    Raises:
        StaysError: The dtypes or the numbers differ.
    """
    ours, torchs = ([value.detach().numpy() for value in side] for side in (outputs, answer))
    dtypes = [[value.dtype.name for value in side] for side in (ours, torchs)]
    if dtypes[0] != dtypes[1]:
        raise StaysError(f"its network's outputs are {dtypes[0]}, not {dtypes[1]}")
    check = agreement(ours, torchs, tolerance=TOLERANCE)
    if check.problem is not None:
        raise StaysError(f"its network gives other answers: {check.problem}")


class Weights:
    """The weights that are constants of a network, to be compared with those of each call.

    autograd counts no change through ``.data`` or NumPy, so some numbers are compared as well.
    Weights of modules that are gone stay in no memory. References to their storages are weak,
    because torch swaps no tensors that have weak references themselves.

    Args:
        arguments: The arguments of the call that the network is compiled for.
        indices: Indices of the arguments that are weights.
    """

    def __init__(self, arguments: Sequence[Tensor], indices: Collection[int]) -> None:
        values = [(index, arguments[index]) for index in indices]
        self._weights = [
            (index, id(value), StorageWeakRef(value.untyped_storage()), _state(value))
            for index, value in values
        ]
        self._samples: dict[int, list[NDArray[Any]]] = {}
        for _, value in values:
            self._samples.setdefault(value.element_size(), []).append(_sample(value))
        self._sampled = self._bits()

    def are_same(self, arguments: Sequence[Tensor]) -> bool:
        """Whether a call has these weights, and they are unchanged."""
        return (
            not self.are_others(arguments)
            # Samples may be read only at addresses of memory that is there.
            and all(_state(arguments[i]) == state for i, _, _, state in self._weights)
            and self._bits() == self._sampled
        )

    def are_others(self, arguments: Sequence[Tensor]) -> bool:
        """Whether a call is of another instance of the layer, or has replaced weights."""
        # Another tensor may have the identity of one that is gone.
        return any(
            id(arguments[i]) != own or memory.expired() for i, own, memory, _ in self._weights
        )

    def _bits(self) -> list[bytes]:
        """The bytes of all samples, because NaN differs from itself."""
        return [np.concatenate(group).tobytes() for group in self._samples.values()]


def _state(value: Tensor) -> tuple[int, int]:
    """The address of a tensor, and how often it was changed in place, as autograd counts it."""
    return value.data_ptr(), value._version  # noqa: SLF001 - torch documents no other name


def _sample(value: Tensor) -> NDArray[Any]:
    """Up to ``_SAMPLES`` numbers of a tensor, evenly spaced in memory, which they do not keep."""
    item = value.element_size()
    most = value.untyped_storage().nbytes() // item - value.storage_offset()
    size = min(value.numel(), most)
    memory = (ctypes.c_char * (size * item)).from_address(value.data_ptr())
    step = max(1, size // _SAMPLES) * item
    return np.ndarray((min(size, _SAMPLES),), f"V{item}", memory, strides=(step,))
