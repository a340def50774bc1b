"""Joins the design spaces of a convolution's algorithms, with the algorithm as a knob."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from chameleon_core.space import Choice, Constraint, DesignSpace, FeatureBlock, Knob, Values
from numpy.typing import NDArray

from chameleon_tvm.spaces.template.options import DIRECT, TILES, WEIGHTS, TemplateOptions
from chameleon_tvm.spaces.template.transforms import expected_error
from chameleon_tvm.types import STORAGE

KNOB = "algorithm"
"""Name of the knob for the algorithm, which is always the first knob."""

_OTHER_SHARE = 3
"""Number of first guesses of the likelier algorithm for each first guess of the other."""

Chosen = Sequence[Callable[[Values], NDArray[np.bool_]]]
"""For each of several spaces, a function that says which of n configurations belong to the space,
shape (n,)."""


def allowed_algorithms(options: TemplateOptions, channels: int) -> tuple[str, ...]:
    """The algorithms that a convolution may use: those with a small enough expected error.

    Args:
        options: The requested algorithms, and the largest error.
        channels: Number of input channels of the layer, on which the error depends.
    """
    return _allowed(options, TILES, lambda out: expected_error(out, channels))


def _allowed(
    options: TemplateOptions, kinds: Mapping[str, Any], error: Callable[[Any], float]
) -> tuple[str, ...]:
    limit = options.max_error
    return tuple(
        algorithm
        for algorithm in options.algorithms
        if algorithm in kinds and (limit is None or error(kinds[algorithm]) <= limit)
    )


def rounding_error(dtype: str) -> float:
    """The expected error of an output if weights are stored in a 16-bit floating-point dtype.

    The rounding errors of weights are independent and uniform, up to half a unit in the last place.
    The function returns the standard deviation of such an error, relative to the weight. A sum of
    many products with random signs has the same relative error. The reason is that the sum and its
    error both grow with the square root of the number of products.

    Args:
        dtype: A 16-bit floating-point dtype.
    """
    return STORAGE[dtype].rounding / 2.0 / math.sqrt(3.0)


def allowed_weights(options: TemplateOptions) -> tuple[str, ...]:
    """The algorithms with 16-bit weights whose expected error is small enough.

    Args:
        options: The requested algorithms, and the largest error.
    """
    return _allowed(options, WEIGHTS, rounding_error)


def with_stored_weights(spaces: Mapping[str, DesignSpace]) -> DesignSpace:
    """Join the spaces of a dense layer's algorithms, each of which stores weights in one dtype.

    The first knob of the joined space chooses the algorithm, and so the dtype.

    Args:
        spaces: The space of each algorithm, by the algorithm's name, such as ``bfloat16_weights``.
            The names become the values of the first knob. All spaces have the same knobs.
    """
    names = tuple(spaces)
    kinds = list(spaces.values())
    blocks = [kind.features_block for kind in kinds]

    chosen = [partial(_is, name=name) for name in names]

    def compute(values: Values) -> NDArray[np.float64]:
        parts = [block.compute(values) for block in blocks if block is not None]
        rows = np.select([part(values)[:, None] for part in chosen], parts)
        return np.column_stack([rows, chosen[0](values)])

    # In turns, so that what a search measures first tells it about each.
    guesses = sorted(
        (at, number, guess)
        for number, kind in enumerate(kinds)
        for at, guess in enumerate(kind.first_guesses.tolist())
    )
    shared = blocks[0]
    return DesignSpace(
        [Choice(name=KNOB, options=names), *kinds[0].knobs],
        constraints=_constraints(kinds, chosen),
        features=shared
        and FeatureBlock(
            names=(*shared.names, names[0]),
            compute=compute,
            groups=(*shared.groups, ("stored weights", names[:1])),
        ),
        guessed_cost=_guessed_cost(kinds, chosen),
        first_guesses=np.array([[number, *guess] for _, number, guess in guesses], np.int32),
    )


def joined(direct: DesignSpace, winograd: DesignSpace, *, usually_wins: bool = True) -> DesignSpace:
    """Join two spaces into one, whose first knob says which space a configuration belongs to.

    Args:
        direct: The space of the direct convolution.
        winograd: The space of another algorithm, such as Winograd's, whose first knob is
            ``algorithm`` already.
        usually_wins: Whether the best first guess uses the other algorithm, even if this guess has
            a higher estimated cost than that of the direct convolution. If False, the lower
            estimated cost decides.
    """
    others = tuple(str(algorithm) for algorithm in winograd.knobs[0].values)
    algorithm = Choice(name=KNOB, options=(DIRECT, *others))
    applies = tuple(range(1, 1 + len(others)))
    knobs: list[Knob] = [algorithm]
    knobs += [attrs.evolve(knob, when=(KNOB, (0,))) for knob in direct.knobs]
    knobs += [attrs.evolve(knob, when=(KNOB, applies)) for knob in winograd.knobs[1:]]
    spaces = [direct, winograd]
    chosen: Chosen = [_is_direct, lambda v: ~_is_direct(v)]
    return DesignSpace(
        knobs,
        constraints=_constraints(spaces, chosen),
        features=_features(direct, winograd),
        guessed_cost=_guessed_cost(spaces, chosen),
        first_guesses=_alternating(
            direct, winograd, usually_wins or _least_cost(winograd) <= _least_cost(direct)
        ),
        only=_everything(direct, winograd),
    )


def _everything(direct: DesignSpace, winograd: DesignSpace) -> NDArray[np.int32] | None:
    """All configurations that can be legal, if both spaces are small enough to list; else None.

    Of random index vectors of the joined space, hardly one in ten thousand is legal.
    """
    left, right = direct.everything, winograd.everything
    return None if left is None or right is None else _side_by_side(left, right)


def _side_by_side(left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int32]:
    """Configurations of the joined space: those of the direct algorithm, then the other's."""
    knobs = left.shape[1]
    rows = np.zeros((len(left) + len(right), knobs + right.shape[1]), np.int32)
    rows[: len(left), 1 : 1 + knobs] = left
    rows[len(left) :, 0] = 1 + right[:, 0]
    rows[len(left) :, 1 + knobs :] = right[:, 1:]
    return rows


def _is(values: Values, name: str) -> NDArray[np.bool_]:
    """Whether each of n configurations has the named algorithm, shape (n,)."""
    return np.asarray(values[KNOB] == name)


_is_direct = partial(_is, name=DIRECT)


def _constraints(spaces: Sequence[DesignSpace], chosen: Chosen) -> list[Constraint]:
    """The constraints of all spaces, each applied only to configurations of its own space."""

    def where(constraint: Constraint, mine: Callable[[Values], NDArray[np.bool_]]) -> Constraint:
        return attrs.evolve(constraint, holds=lambda v: ~mine(v) | constraint.holds(v))

    return [
        where(constraint, mine)
        for space, mine in zip(spaces, chosen, strict=True)
        for constraint in space.constraints
    ]


def _guessed_cost(
    spaces: Sequence[DesignSpace], chosen: Chosen
) -> Callable[[Values], NDArray[np.float64]] | None:
    """A function that guesses the cost of configurations of all algorithms; None if one cannot.

    All costs have the unit of the direct convolution's products.

    Args:
        spaces: The space of each algorithm.
        chosen: For each space, which of n configurations belong to it, shape (n,).
    """
    costs = [space.guessed_cost for space in spaces]

    def cost(values: Values) -> NDArray[np.float64]:
        parts = [np.asarray(part(values), np.float64) for part in costs if part is not None]
        return np.select([part(values) for part in chosen], parts)

    return None if None in costs else cost


def _features(direct: DesignSpace, winograd: DesignSpace) -> FeatureBlock | None:
    """Features of both algorithms. A configuration has zeros for the other algorithm."""
    left, right = direct.features_block, winograd.features_block
    if left is None or right is None:
        return None

    def compute(values: Values) -> NDArray[np.float64]:
        chosen = _is_direct(values)[:, None]
        ours = np.where(chosen, left.compute(values), 0.0)
        return np.hstack([ours, np.where(chosen, 0.0, right.compute(values))])

    return FeatureBlock(
        names=(*left.names, *right.names), compute=compute, groups=(*left.groups, *right.groups)
    )


def _alternating(
    direct: DesignSpace, winograd: DesignSpace, others_first: bool
) -> NDArray[np.int32]:
    """First guesses of both algorithms: the first, and three of four, are of the likelier winner.

    So the first measurements of a search are near the best, and still cover both algorithms.
    """
    ours, theirs = direct.first_guesses, winograd.first_guesses
    rows = _side_by_side(ours, theirs)
    # One of the less likely after the first of the others, and after each three of the next.
    rare = np.arange(len(rows)) + 0.5
    often = (np.arange(len(rows)) + 2.0) // _OTHER_SHARE
    places = (rare, often) if others_first else (often, rare)
    order = np.concatenate([places[0][: len(ours)], places[1][: len(theirs)]])
    return rows[np.argsort(order, kind="stable")]


def _least_cost(space: DesignSpace) -> float:
    """The guessed cost of the best first guess of a space."""
    assert space.guessed_cost is not None  # noqa: S101 - templates guess
    return float(np.min(space.guessed_cost(space.values(space.first_guesses))))
