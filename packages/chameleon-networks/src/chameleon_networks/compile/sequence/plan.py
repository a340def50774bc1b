"""Where each tensor of a call sequence lies: offsets in one arena, or one of the weights.

Storages that are never alive together share memory. They are placed by size, the largest first,
each into the smallest gap between those alive at the same time ("greedy by size", section 4.3 of
Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks.compile.sequence.calls import CallSequence, Storage, Tensor
from chameleon_networks.runtime.pack import aligned

_FEW = 4096
"""Bytes of a constant that are looked at before all of them are."""


@attrs.frozen(kw_only=True)
class Interval:
    """How long memory is needed.

    Attributes:
        size: bytes.
        first: number of the first call that uses it.
        last: number of the last one.
    """

    size: int
    first: int
    last: int


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """Places of all storages.

    Attributes:
        arena: offset in the arena of each storage that has memory there.
        arena_size: bytes.
        weights: number of each constant among the distinct ones.
        blobs: the distinct constants.
        returned: of storages that are written where an output is wanted, the output's position.
        copied: positions of outputs that have to be copied from what they are part of.
    """

    arena: Mapping[Storage, int]
    arena_size: int
    weights: Mapping[Storage, int]
    blobs: tuple[NDArray[Any], ...]
    returned: Mapping[Storage, int]
    copied: tuple[int, ...]


def planned(sequence: CallSequence, *, merged: bool = True) -> Plan:
    """Places for the storages of a sequence.

    Args:
        sequence: the calls.
        merged: whether constants of the same bytes are one.
    """
    returned: dict[Storage, int] = {}
    copied = []
    for position, output in enumerate(sequence.outputs):
        if output.storage.written and output.whole and output.storage not in returned:
            returned[output.storage] = position
        else:
            copied.append(position)
    alive = _lifetimes(sequence, returned)
    offsets, arena_size = placed(list(alive.values()))
    weights, blobs = _weights(sequence, merged=merged)
    return Plan(
        arena=dict(zip(alive, offsets, strict=True)),
        arena_size=arena_size,
        weights=weights,
        blobs=blobs,
        returned=returned,
        copied=tuple(copied),
    )


def placed(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """Offsets at which intervals that overlap in time do not overlap in memory.

    Args:
        intervals: what has to be placed.

    Returns:
        The offset of each, a multiple of ``ALIGNMENT``, and the bytes of all together.
    """
    offsets: dict[int, int] = {}
    for number in sorted(range(len(intervals)), key=lambda one: -intervals[one].size):
        one = intervals[number]
        neighbours = sorted(
            (offsets[other], offsets[other] + aligned(intervals[other].size))
            for other in offsets
            if intervals[other].first <= one.last and one.first <= intervals[other].last
        )
        offsets[number] = _gap(neighbours, one.size)
    ends = [offsets[number] + aligned(one.size) for number, one in enumerate(intervals)]
    return [offsets[number] for number in range(len(intervals))], max(ends, default=0)


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Start of the smallest gap that is large enough, else the end of all that is taken."""
    best, at, smallest = None, 0, None
    for start, end in taken:
        gap = start - at
        if gap >= size and (smallest is None or gap < smallest):
            best, smallest = at, gap
        at = max(at, end)
    return at if best is None else best


def _lifetimes(sequence: CallSequence, returned: Mapping[Storage, int]) -> dict[Storage, Interval]:
    alive: dict[Storage, Interval] = {}

    def use(tensor: Tensor, number: int) -> None:
        storage = tensor.storage
        if not storage.written or storage in returned:
            return
        known = alive.get(storage, Interval(size=storage.size, first=number, last=number))
        alive[storage] = attrs.evolve(known, last=number)

    for number, call in enumerate(sequence.calls):
        for tensor in call.arguments:
            use(tensor, number)
    for output in sequence.outputs:
        use(output, len(sequence.calls))
    return alive


def _weights(
    sequence: CallSequence, *, merged: bool
) -> tuple[dict[Storage, int], tuple[NDArray[Any], ...]]:
    """Numbers of constants; those of the same bytes are one where they are merged."""
    numbers: dict[Storage, int] = {}
    alike: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    blobs: list[NDArray[Any]] = []
    tensors = [tensor for call in sequence.calls for tensor in call.arguments]
    for tensor in [*tensors, *sequence.outputs]:
        storage = tensor.storage
        if storage.constant is None or storage in numbers:
            continue
        found = _bytes(storage.constant)
        # Constants of one size mostly differ in any few of their bytes.
        few = found[:: max(1, len(found) // _FEW)].tobytes()
        candidates = alike[len(found), few] if merged else []
        same = (one for one in candidates if np.array_equal(_bytes(blobs[one]), found))
        number = next(same, None)
        if number is None:
            number = len(blobs)
            blobs.append(storage.constant)
            candidates.append(number)
        numbers[storage] = number
    return numbers, tuple(blobs)


def _bytes(constant: NDArray[Any]) -> NDArray[np.ubyte]:
    return constant.reshape(-1).view(np.ubyte)
