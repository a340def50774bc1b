"""One design space of several algorithms: which one is a knob like any other."""

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
"""Name of the knob; it comes first."""

_OTHER_SHARE = 3
"""First guesses of the likelier algorithm for each of the other one."""

Chosen = Sequence[Callable[[Values], NDArray[np.bool_]]]
"""For each of some spaces, which of n configurations are of it, shape (n,)."""


def allowed_algorithms(options: TemplateOptions, channels: int) -> tuple[str, ...]:
    """Winograd's algorithms that a layer may use, those that lose too much left out.

    Args:
        options: which are asked for, and the largest error.
        channels: input channels of the layer, on which the error depends.
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
    """The loss of an output that is expected from weights that are stored in a type.

    The errors of weights are independent and uniform up to half of the last place of each. So sums
    of their products lose as much, relative to sums of the products, as one weight does.

    Args:
        dtype: a floating type of two bytes.
    """
    return STORAGE[dtype].rounding / 2.0 / math.sqrt(3.0)


def allowed_weights(options: TemplateOptions) -> tuple[str, ...]:
    """Algorithms that store weights in less than float32, those that lose too much left out.

    Args:
        options: which are asked for, and the largest error.
    """
    return _allowed(options, WEIGHTS, rounding_error)


def with_stored_weights(spaces: Mapping[str, DesignSpace]) -> DesignSpace:
    """One space whose first knob tells in what weights are stored.

    Args:
        spaces: those of each algorithm, which have the same knobs.
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
    """Both spaces as one, whose first knob tells which one a configuration is of.

    Args:
        direct: the direct convolution's.
        winograd: that of another algorithm, whose first knob is ``algorithm`` already.
        usually_wins: whether the other one is guessed first even if its estimate is worse.
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
    """All that can be legal, if both spaces are small enough to be listed.

    Hardly one in ten thousand index vectors of both together is legal.
    """
    left, right = direct.everything, winograd.everything
    if left is None or right is None:
        return None
    own = np.zeros((len(left), len(winograd.knobs)), np.int32)
    others = np.zeros((len(right), len(direct.knobs)), np.int32)
    return np.concatenate(
        [
            np.column_stack([own[:, :1], left, own[:, 1:]]),
            np.column_stack([1 + right[:, :1], others, right[:, 1:]]),
        ]
    ).astype(np.int32)


def _is(values: Values, name: str) -> NDArray[np.bool_]:
    """Which of n configurations are of an algorithm."""
    return np.asarray(values[KNOB] == name)


_is_direct = partial(_is, name=DIRECT)


def _constraints(spaces: Sequence[DesignSpace], chosen: Chosen) -> list[Constraint]:
    """Those of all spaces, each for configurations of its own alone."""

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
    """Each algorithm's guess for its own configurations; all are in the time of direct products.

    Args:
        spaces: of the algorithms.
        chosen: which of n configurations are of each, shape (n,).
    """
    costs = [space.guessed_cost for space in spaces]

    def cost(values: Values) -> NDArray[np.float64]:
        parts = [np.asarray(part(values), np.float64) for part in costs if part is not None]
        return np.select([part(values) for part in chosen], parts)

    return None if None in costs else cost


def _features(direct: DesignSpace, winograd: DesignSpace) -> FeatureBlock | None:
    """Each algorithm's analytical features, zero for the other's configurations."""
    left, right = direct.features_block, winograd.features_block
    if left is None or right is None:
        return None

    def compute(values: Values) -> NDArray[np.float64]:
        chosen = _is_direct(values)[:, None]
        return np.concatenate(
            [
                np.where(chosen, left.compute(values), 0.0),
                np.where(chosen, 0.0, right.compute(values)),
            ],
            axis=1,
        )

    return FeatureBlock(
        names=(*left.names, *right.names), compute=compute, groups=(*left.groups, *right.groups)
    )


def _alternating(
    direct: DesignSpace, winograd: DesignSpace, others_first: bool
) -> NDArray[np.int32]:
    """First guesses of both: three of four, and the first, are of one, which probably wins.

    The first measurements of a search should be near the best, and still tell it about both.
    """
    left, right = len(direct.knobs), len(winograd.knobs)
    ours, theirs = direct.first_guesses, winograd.first_guesses
    rows = np.zeros((len(ours) + len(theirs), left + right), np.int32)
    rows[: len(ours), 1 : 1 + left] = ours
    rows[len(ours) :, 0] = 1 + theirs[:, 0]
    rows[len(ours) :, 1 + left :] = theirs[:, 1:]
    # One of the less likely after the first of the others, and after each three of the next.
    rare = np.arange(len(rows)) + 0.5
    often = (np.arange(len(rows)) + 2.0) // _OTHER_SHARE
    places = (rare, often) if others_first else (often, rare)
    order = np.concatenate([places[0][: len(ours)], places[1][: len(theirs)]])
    return rows[np.argsort(order, kind="stable")]


def _least_cost(space: DesignSpace) -> float:
    """The guessed cost of a space's best first guess."""
    assert space.guessed_cost is not None  # noqa: S101 - templates guess
    return float(np.min(space.guessed_cost(space.values(space.first_guesses))))
