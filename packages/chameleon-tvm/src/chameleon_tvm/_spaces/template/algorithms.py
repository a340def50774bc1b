"""The interface of an operator's algorithms, and their joined design space.

The first knob of the joined space is the algorithm.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Arrays,
    Choice,
    Constraint,
    DesignSpace,
    FeatureBlock,
    Knob,
    Values,
)
from numpy.typing import NDArray

from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm._spaces.template.options import (
    DIRECT,
    SPLITS,
    TILES,
    WEIGHTS,
    TemplateOptions,
)
from chameleon_tvm._spaces.template.transforms import expected_error
from chameleon_tvm._types import BFLOAT16, STORAGE

KNOB = "algorithm"
"""Name of the knob for the algorithm, which is always the first knob."""

_OTHER_SHARE = 3
"""Number of first guesses of the likeliest algorithm for each first guess of another."""

_MANTISSA = 0.72
"""Root mean square of 1/m for mantissas m that are log-uniform in [1, 2)."""

Chosen = Sequence[Callable[[Values], NDArray[np.bool_]]]
"""For each of several spaces, a function that says which of n configurations belong to the space,
shape (n,)."""


class Algorithm(ABC):
    """A way to compute an operator: where it applies, its knobs, its code and packed constants.

    A template's design space joins any number of algorithms (``joined``).

    Attributes:
        names: Values of the knob ``algorithm``. They share the other knobs of the space.
        leads: Whether a search first measures a guess of this algorithm before one of an algorithm
            that does not lead, whatever their estimated costs. Among algorithms that lead, the
            lower estimated cost decides, and so it does among the others.
    """

    names: Sequence[str]
    leads: bool = True

    @abstractmethod
    def space(self) -> DesignSpace:
        """The design space. If it has several algorithms, its first knob is the algorithm."""

    @abstractmethod
    def function(
        self, values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
    ) -> tirx.PrimFunc:
        """Make the TensorIR function of a legal configuration.

        Args:
            values: The value of each knob by its name.
            shapes: Shapes of the parameters that callers pass, by name.
        """

    @abstractmethod
    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        """Pack logical constants (weights, ...) for the function of a configuration.

        Args:
            values: The value of each knob by its name.
            constants: The logical constants.
        """

    @property
    def tolerance(self) -> float:
        """The error that the algorithm may have beyond the operator's tolerance, usually 0."""
        return 0.0


class JoinedTemplate(Template):
    """A template that chooses among several algorithms.

    Attributes:
        algorithms: The algorithms that support the task.
        shapes: Shapes of the parameters that callers pass to functions, by name.
    """

    algorithms: Sequence[Algorithm]
    shapes: Mapping[str, Sequence[int]]

    def space(self) -> DesignSpace:
        return joined(self.algorithms)

    @property
    def tolerance(self) -> float:
        return max(algorithm.tolerance for algorithm in self.algorithms)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return self._chosen(values).function(values, self.shapes)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        return self._chosen(values).pack(values, constants)

    def _chosen(self, values: Mapping[str, Any]) -> Algorithm:
        """The algorithm of a decoded configuration."""
        name = values.get(KNOB, self.algorithms[0].names[0])
        return next(algorithm for algorithm in self.algorithms if name in algorithm.names)


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


def chosen_of(
    exact: Sequence[Algorithm], rounded: Sequence[Algorithm], options: TemplateOptions
) -> Sequence[Algorithm]:
    """The algorithms of an operator that the options choose.

    Args:
        exact: Algorithms that round no more than the operator's dtype does, the direct one first.
        rounded: Allowed algorithms with rounding errors of their own.
        options: The requested algorithms.
    """
    only_rounded = bool(rounded) and len(exact) == 1 and DIRECT not in options.algorithms
    return rounded if only_rounded else [*exact, *rounded]


def split_error(parts: int) -> float:
    """The expected error of an output whose factors are sums of several bfloat16 numbers.

    Rounding to bfloat16 leaves a relative rest that is uniform up to half a unit in the last place.
    Each further part leaves such a rest of the one before. Errors are the rests of both factors
    and products of parts that are left out. They all have about the same size. As in
    ``rounding_error``, a sum of products with random signs has the same relative error.

    Args:
        parts: Number of parts of a factor.
    """
    rest = _MANTISSA * STORAGE[BFLOAT16].rounding / math.sqrt(3.0)
    return math.sqrt(parts + 1.0) * rest**parts


def allowed_splits(options: TemplateOptions) -> tuple[str, ...]:
    """The algorithms of split numbers whose expected error is small enough.

    Args:
        options: The requested algorithms, and the largest error.
    """
    return _allowed(options, SPLITS, split_error)


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

    chosen = [partial(_is, names=(name,)) for name in names]

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


def joined(algorithms: Sequence[Algorithm]) -> DesignSpace:
    """Join the design spaces of an operator's algorithms into one.

    The first knob of the joined space is the algorithm. The other knobs of a space apply only if
    one of its algorithms is chosen.

    Args:
        algorithms: The algorithms. The names of their knobs differ, except for the first knob.
    """
    spaces = [algorithm.space() for algorithm in algorithms]
    if len(spaces) == 1:
        return spaces[0]
    names = [algorithm.names for algorithm in algorithms]
    knobs: list[Knob] = [Choice(name=KNOB, options=tuple(itertools.chain(*names)))]
    first = 0
    for space, own in zip(spaces, names, strict=True):
        applies = tuple(range(first, first + len(own)))
        knobs += [attrs.evolve(knob, when=(KNOB, applies)) for knob in _own_knobs(space)]
        first += len(own)
    chosen: Chosen = [partial(_is, names=own) for own in names]
    return DesignSpace(
        knobs,
        constraints=_constraints(spaces, chosen),
        features=_features(spaces, chosen),
        guessed_cost=_guessed_cost(spaces, chosen),
        first_guesses=_alternating(spaces, names, _likeliest(algorithms, spaces)),
        only=_everything(spaces, names),
    )


def _own_knobs(space: DesignSpace) -> Sequence[Knob]:
    """The knobs of a space except the algorithm."""
    return space.knobs[1:] if space.knobs[0].name == KNOB else space.knobs


def _everything(
    spaces: Sequence[DesignSpace], names: Sequence[Sequence[str]]
) -> NDArray[np.int32] | None:
    """All configurations that can be legal, if all spaces are small enough to list; else None.

    Of random index vectors of the joined space, hardly one in ten thousand is legal.
    """
    parts = [part for space in spaces if (part := space.all_legal) is not None]
    return _side_by_side(spaces, names, parts) if len(parts) == len(spaces) else None


def _side_by_side(
    spaces: Sequence[DesignSpace],
    names: Sequence[Sequence[str]],
    parts: Sequence[NDArray[np.int32]],
) -> NDArray[np.int32]:
    """Configurations of the joined space, from configurations of each of the spaces in turn."""
    width = 1 + sum(len(_own_knobs(space)) for space in spaces)
    rows = np.zeros((sum(map(len, parts)), width), np.int32)
    row, column, first = 0, 1, 0
    for space, own, part in zip(spaces, names, parts, strict=True):
        knobs = len(_own_knobs(space))
        mine = rows[row : row + len(part)]
        mine[:, 0] = first
        if part.shape[1] > knobs:
            mine[:, 0] += part[:, 0]
        mine[:, column : column + knobs] = part[:, part.shape[1] - knobs :]
        row, column, first = row + len(part), column + knobs, first + len(own)
    return rows


def _is(values: Values, names: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each of n configurations has one of the named algorithms, shape (n,)."""
    return np.asarray(np.logical_or.reduce([values[KNOB] == name for name in names]))


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


def _features(spaces: Sequence[DesignSpace], chosen: Chosen) -> FeatureBlock | None:
    """Features of all algorithms. A configuration has zeros for the other algorithms."""
    blocks = [space.features_block for space in spaces]
    known = [block for block in blocks if block is not None]
    if len(known) < len(blocks):
        return None

    def compute(values: Values) -> NDArray[np.float64]:
        return np.hstack(
            [
                np.where(mine(values)[:, None], block.compute(values), 0.0)
                for block, mine in zip(known, chosen, strict=True)
            ]
        )

    return FeatureBlock(
        names=tuple(name for block in known for name in block.names),
        compute=compute,
        groups=tuple(group for block in known for group in block.groups),
    )


def _likeliest(algorithms: Sequence[Algorithm], spaces: Sequence[DesignSpace]) -> int:
    """The position of the algorithm whose first guess is likely the best."""
    order = [
        (not algorithm.leads, _least_cost(space), -position)
        for position, (algorithm, space) in enumerate(zip(algorithms, spaces, strict=True))
    ]
    return -min(order)[-1]


def _alternating(
    spaces: Sequence[DesignSpace], names: Sequence[Sequence[str]], likeliest: int
) -> NDArray[np.int32]:
    """First guesses of all algorithms: the first, and most of them, are of the likeliest one.

    So the first measurements of a search are near the best, and still cover every algorithm.
    """
    rows = _side_by_side(spaces, names, [space.first_guesses for space in spaces])
    places = []
    for position, space in enumerate(spaces):
        number = np.arange(len(space.first_guesses))
        # One of each other algorithm after the first of the likeliest, and after each next three.
        often = (number + _OTHER_SHARE - 1.0) // _OTHER_SHARE
        places.append(often if position == likeliest else number + 0.5)
    return rows[np.argsort(np.concatenate(places), kind="stable")]


def _least_cost(space: DesignSpace) -> float:
    """The guessed cost of the best first guess of a space."""
    assert space.guessed_cost is not None  # noqa: S101 - templates guess
    return float(np.min(space.guessed_cost(space.values(space.first_guesses))))
