"""How permutations pass through reshapes and reductions, as arithmetic on axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import attrs

Axes = tuple[int, ...]


@attrs.frozen(kw_only=True)
class PermutedReshape:
    """A reshape of a permuted tensor in another order of steps.

    Attributes:
        first: axes that the tensor is permuted to first.
        shape: what it is reshaped to then.
        last: axes that the result is permuted to last.
    """

    first: Axes
    shape: Axes
    last: Axes


def moves_nothing(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a permutation leaves all elements where they are: it moves axes of one index only.

    Args:
        axes: where each axis of the result comes from.
        shape: of what is permuted.
    """
    kept = [axis for axis in axes if shape[axis] != 1]
    return kept == sorted(kept)


def through_reshape(
    shape: Sequence[int], axes: Sequence[int], reshaped: Sequence[int]
) -> PermutedReshape:
    """A permutation and a reshape, with the permutation last as far as that is possible.

    Axes that are merged have to be neighbours before, which may take a permutation of their own.
    Apart from that the order is the original tensor's: a channel shuffle of images in NCHW that
    are kept in NHWC becomes one in NHWC.

    Args:
        shape: of the tensor.
        axes: where each axis of the permuted tensor comes from.
        reshaped: what the permuted tensor is reshaped to, with as many elements.
    """
    blocks = _blocks([shape[axis] for axis in axes], reshaped)
    origins = [tuple(axes[place] for place in inside) for inside, _ in blocks]

    def first_of(block: int) -> float:
        real = [axis for axis in origins[block] if shape[axis] != 1]
        return min(real or origins[block], default=-1)

    order = sorted(range(len(blocks)), key=first_of)
    places = {place: number for number, place in enumerate(_joined(blocks[b][1] for b in order))}
    return PermutedReshape(
        first=_joined(origins[block] for block in order),
        shape=tuple(reshaped[place] for place in places),
        last=tuple(places[place] for place in range(len(reshaped))),
    )


def through_reduction(axes: Sequence[int], reduced: Sequence[int]) -> tuple[Axes, Axes]:
    """A permutation and a reduction that drops axes, with the reduction first.

    Args:
        axes: where each axis of the permuted tensor comes from.
        reduced: axes of the permuted tensor that are reduced.

    Returns:
        The tensor's axes that are reduced, and what the result is permuted to.
    """
    dropped = tuple(axes[axis] for axis in reduced)
    kept = [axis for place, axis in enumerate(axes) if place not in reduced]
    return dropped, tuple(sorted(kept).index(axis) for axis in kept)


def _blocks(shape: Sequence[int], reshaped: Sequence[int]) -> list[tuple[Axes, Axes]]:
    """The smallest runs of axes before and after a reshape that hold the same elements."""
    blocks: list[tuple[Axes, Axes]] = []
    here = there = 0
    while here < len(shape) or there < len(reshaped):
        begin, start = here, there
        before = after = 1
        if here < len(shape):
            before, here = shape[here], here + 1
        if there < len(reshaped):
            after, there = reshaped[there], there + 1
        while before != after:
            if before < after:
                before, here = before * shape[here], here + 1
            else:
                after, there = after * reshaped[there], there + 1
        blocks.append((tuple(range(begin, here)), tuple(range(start, there))))
    return blocks


def _joined(parts: Iterable[Axes]) -> Axes:
    return tuple(itertools.chain.from_iterable(parts))
