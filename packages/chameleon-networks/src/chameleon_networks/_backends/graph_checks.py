"""Checks of the arguments, weights, answers and times of graphs of ``torch.compile``."""

from __future__ import annotations

import contextlib
import json
import math
import operator
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from weakref import ReferenceType, ref

import torch
from chameleon_system.api import write_atomic
from torch import Tensor, nn

from chameleon_networks._backends import FallbackError
from chameleon_networks._backends.graph_deliveries import bytes_of
from chameleon_networks._evaluation.verify import TOLERANCE, compare_outputs

_COMPARISONS = 5
"""Number of latest comparisons whose median decides, so that two disturbed ones change nothing."""
_SAMPLES = 8
"""How many numbers of each weight a call compares, to notice changes that autograd does not."""
_OWNED = "_chameleon_sample"
"""The attribute of a weight with these numbers, for all graphs that have the weight."""


def fallback_reason(example_inputs: Sequence[Any]) -> str | None:
    """The reason why no network can compute a graph with such arguments, or None."""
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
    """Whether torch marks an argument as a parameter or buffer whose changes it counts."""
    # A tensor made in inference mode counts as an input, because torch does not count its changes.
    marked = hasattr(value, "_dynamo_static_input_type") and not value.is_inference()
    return isinstance(value, nn.Parameter) or marked


def check_answer(answer: Sequence[Any], inputs: Sequence[Tensor]) -> None:
    """Check that a network can return such an answer to a call."""
    if torch.is_autocast_enabled("cpu"):
        raise FallbackError("torch.autocast is on, whose dtypes a network does not have")
    if not all(isinstance(value, Tensor) for value in answer):
        raise FallbackError("an output is no tensor")
    if any(value.requires_grad for value in answer):
        raise FallbackError("gradients of an output are wanted")
    if not all(value.numel() for value in (*answer, *inputs)):
        raise FallbackError("an input or output is empty")
    for value in (*answer, *inputs):
        if value.is_floating_point() and value.element_size() < torch.float32.itemsize:
            raise FallbackError(f"an input or output is in {str(value.dtype)[6:]}")
        value.detach().numpy()  # raises TypeError if NumPy lacks the dtype


def check_outputs(outputs: Sequence[Tensor], answer: Sequence[Tensor]) -> None:
    """Check that a network's outputs are torch's."""
    ours, torchs = ([value.detach().numpy() for value in side] for side in (outputs, answer))
    dtypes = [[value.dtype.name for value in side] for side in (ours, torchs)]
    if dtypes[0] != dtypes[1]:
        raise FallbackError(f"its network's outputs are {dtypes[0]}, not {dtypes[1]}")
    check = compare_outputs(ours, torchs, tolerance=TOLERANCE)
    if check.problem is not None:
        raise FallbackError(f"its network gives other answers: {check.problem}")


class Weights:
    """The weights of a network, compared at each call, as autograd misses changes by NumPy."""

    def __init__(self, arguments: Sequence[Tensor], indices: Collection[int]) -> None:
        self._weights: list[tuple[int, int, ReferenceType[Tensor], tuple[int, int]]] = []
        groups: dict[torch.dtype, list[Tensor]] = {}
        for index in indices:
            value = arguments[index]
            sample = _sample(value)
            # torch does not swap weights with weak references, but a sample lives as long.
            self._weights.append((index, id(value), ref(sample), _state(value)))
            groups.setdefault(sample.dtype, []).append(sample)
        self._groups = [[ref(sample) for sample in group] for group in groups.values()]
        self._sampled = _bits(groups.values())

    def are_same(self, arguments: Sequence[Tensor]) -> bool:
        """Whether a call has these weights, and they are unchanged."""
        # These references keep the memory alive while it is read, even if another thread frees it.
        samples: Any = [[sample() for sample in group] for group in self._groups]
        return (
            all(
                id(arguments[i]) == own and sample() is not None and _state(arguments[i]) == state
                for i, own, sample, state in self._weights
            )
            and _bits(samples) == self._sampled
        )

    def are_different(self, arguments: Sequence[Tensor]) -> bool:
        """Whether a call is of another instance of the layer, or has replaced weights."""
        # A new tensor may get the id of a freed one.
        return any(
            id(arguments[i]) != own or sample() is None for i, own, sample, _ in self._weights
        )

    def are_freed(self) -> bool:
        """Whether one of these weights exists no more."""
        return any(sample() is None for _, _, sample, _ in self._weights)


def _state(value: Tensor) -> tuple[int, int]:
    """The address of a tensor, and how often it was changed in place, as autograd counts it."""
    return value.data_ptr(), value._version  # noqa: SLF001 - torch documents no other name


def _sample(value: Tensor) -> Tensor:
    """A diagonal of a tensor, with up to ``_SAMPLES`` numbers, as a view that the tensor owns."""
    count = min(max(value.shape, default=1), value.numel(), _SAMPLES)
    steps = [extent // max(count, 1) for extent in value.shape]
    strides = (sum(map(operator.mul, steps, value.stride())),)
    # A view made by torch would refer to the tensor, which refers to the view.
    memory, start = value.untyped_storage(), value.storage_offset()
    sample = value.new_empty(0).set_(memory, start, (count,), strides)
    kept: Tensor = vars(value).setdefault(_OWNED, sample)
    if not kept.is_set_to(sample):
        vars(value)[_OWNED] = kept = sample
    return kept


def _bits(samples: Collection[Sequence[Tensor]]) -> list[bytes]:
    """The bytes of the numbers of each dtype, because NaN differs from itself."""
    return [bytes(bytes_of(torch.cat([*group]))) for group in samples]


class Comparisons:
    """The latest ratios of a network's time to torch's, kept in a file across processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder.with_name("comparisons.json")
        self._shares: list[float] = []
        self.wins: bool | None = None
        # Whatever a damaged file holds, other comparisons take its place.
        with contextlib.suppress(OSError, TypeError, ValueError, ArithmeticError, RuntimeError):
            shares = json.loads(self._file.read_bytes())
            self._shares = [float(share) for share in shares if 0.0 < share < math.inf]

    @property
    def share(self) -> float:
        """The time of a call of the network, as a share of torch's; infinite if it is unknown."""
        return median(self._shares or [math.inf])

    def add(self, ours: float, torchs: float) -> None:
        """Add a comparison, given the seconds of a call of the network and of torch's code."""
        self._shares = [*self._shares, ours / torchs][-_COMPARISONS:]
        with contextlib.suppress(OSError):  # on a full disk, other processes compare anew
            write_atomic(self._file, json.dumps(self._shares))
