"""The interface of an operator's algorithms, and their joint design space."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Arrays,
    Choice,
    Constraint,
    DesignSpace,
    Knob,
    Values,
    load_factory,
)
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._instructions.base import Instruction
from chameleon_tvm._instructions.emission import with_instructions
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import with_zeros
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm._spaces.template.geometry import Geometry
from chameleon_tvm._spaces.template.options import (
    ALGORITHM,
    ALGORITHMS,
    DIRECT,
    WEIGHT_DTYPES,
    TemplateOptions,
)
from chameleon_tvm._types import STORAGE

_LIKELIEST_SHARE = 3
"""Number of first guesses of the likeliest algorithm for each first guess of another."""

Masks = Sequence[Callable[[Values], NDArray[np.bool_]]]
"""For each of several spaces, a function that says which of n configurations belong to the space,
shape (n,)."""


@attrs.frozen(kw_only=True, eq=False)
class Layer:
    """A convolution or matrix product, for which algorithms are chosen.

    Attributes:
        geometry: The sizes, for vectors of float32 numbers.
        direct: The sizes that the direct algorithm computes: of merged groups and padded channels.
        spec: The operator.
        target: The canonical target.
        options: The options of the space, which name the algorithms that are allowed.
    """

    geometry: Geometry
    direct: Geometry
    spec: FusedSpec
    target: str
    options: TemplateOptions


class Algorithm(ABC):
    """A way to compute an operator: its design space, its code and its packed constants.

    Attributes:
        names: Values of the knob ``algorithm``. They share the other knobs of the space.
        preferred: Whether a search measures this algorithm first, whatever its estimated cost.
            Among preferred algorithms, and among the others, the lowest estimated cost comes first.
        instructions: Instructions whose LLVM IR and permissions the functions need.
    """

    names: Sequence[str]
    preferred: bool = True
    instructions: Sequence[Instruction] = ()

    @classmethod
    def of(cls, layer: Layer) -> Self | None:
        """The algorithm of a layer; None if it does not support the layer or is not allowed."""
        raise NotImplementedError

    @abstractmethod
    def space(self) -> DesignSpace:
        """The design space. If it has several algorithms, its first knob is the algorithm."""

    @abstractmethod
    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        """The TensorIR function of a legal configuration, with parameters of any shapes."""

    @abstractmethod
    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        """Pack logical constants (weights, ...) for the function of a configuration."""

    def work(self, values: Mapping[str, Any]) -> float:
        """How many operations the code does for one of the operator."""
        del values
        return 1.0

    @property
    def tolerance(self) -> float:
        """The error that the algorithm may have beyond the operator's tolerance, usually 0."""
        return 0.0


class MultiAlgorithmTemplate(Template):
    """A template with several algorithms; callers pass parameters of ``shapes``.

    Attributes:
        axes: The axes of the data that may be open and have a border, by name.
    """

    algorithms: Sequence[Algorithm]
    shapes: Mapping[str, Sequence[int]]
    axes: Mapping[str, int] = MappingProxyType({})

    def space(self) -> DesignSpace:
        return join_spaces(self.algorithms)

    @property
    def tolerance(self) -> float:
        return max(algorithm.tolerance for algorithm in self.algorithms)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        algorithm = self._algorithm(values)
        function = emit.with_shapes(algorithm.function(values), self.shapes)
        return with_instructions(with_zeros(function, self.axes), algorithm.instructions)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        return self._algorithm(values).pack(values, constants)

    def work(self, values: Mapping[str, Any]) -> float:
        return self._algorithm(values).work(values)

    def _algorithm(self, values: Mapping[str, Any]) -> Algorithm:
        """The algorithm of a decoded configuration."""
        name = values.get(ALGORITHM, self.algorithms[0].names[0])
        return next(algorithm for algorithm in self.algorithms if name in algorithm.names)


def algorithms_of(layer: Layer, direct: Algorithm) -> Sequence[Algorithm]:
    """The algorithms of a layer that the options allow, with the direct algorithm first."""
    exact, rounded = [direct], list[Algorithm]()
    for row in ALGORITHMS:
        kind: Any = load_factory(row.factory)
        algorithm = kind.of(layer)
        if algorithm is not None:
            (rounded if row.parameters else exact).append(algorithm)
    return allowed_algorithms(layer.options, exact, rounded)


def allowed_algorithms(
    options: TemplateOptions, exact: Sequence[Algorithm], rounded: Sequence[Algorithm]
) -> Sequence[Algorithm]:
    """All algorithms, or those that the options name if these leave the direct one out.

    Args:
        exact: The direct algorithm, then others with the usual rounding errors only.
        rounded: Algorithms that the options name.
    """
    only_rounded = bool(rounded) and len(exact) == 1 and DIRECT not in options.algorithms
    return rounded if only_rounded else [*exact, *rounded]


def allowed_names(
    options: TemplateOptions, parameters: Mapping[str, Any], error: Callable[[Any], float]
) -> tuple[str, ...]:
    """The names of algorithms that the options allow and whose expected error is small enough."""
    limit = options.max_error
    return tuple(
        algorithm
        for algorithm in options.algorithms
        if algorithm in parameters and (limit is None or error(parameters[algorithm]) <= limit)
    )


def rounding_error(dtype: str) -> float:
    """The expected relative error of an output if weights are stored in a 16-bit float dtype.

    Rounding errors of weights are uniform up to half a unit in the last place. A sum of products
    with random signs keeps their relative standard deviation, because both grow with its root.
    """
    return STORAGE[dtype].rounding / 2.0 / math.sqrt(3.0)


def allowed_weights(options: TemplateOptions, spec: FusedSpec) -> tuple[str, ...]:
    """The algorithms with 16-bit weights whose expected error is small enough.

    Weights that a dtype holds exactly are direct products, too.
    """
    names = [name for name, dtype in WEIGHT_DTYPES.items() if dtype == spec.exact_weights]
    free = names if DIRECT in options.algorithms else []
    rounded = allowed_names(
        options, WEIGHT_DTYPES, lambda dtype: spec.cancellation * rounding_error(dtype)
    )
    return tuple(dict.fromkeys([*free, *rounded]))


def join_weight_dtypes(spaces: Mapping[str, DesignSpace]) -> DesignSpace:
    """Join the spaces of a dense layer's algorithms, which differ in the dtype of weights."""
    names = tuple(spaces)
    members = list(spaces.values())
    blocks = [space.features_block for space in members]

    masks = [partial(_has_algorithm, names=(name,)) for name in names]

    def compute(values: Values) -> NDArray[np.float64]:
        parts = [block.compute(values) for block in blocks if block is not None]
        rows = np.select([part(values)[:, None] for part in masks], parts)
        return np.column_stack([rows, masks[0](values)])

    # The algorithms take turns, so that the first measurements of a search are of each of them.
    guesses = sorted(
        (at, number, guess)
        for number, space in enumerate(members)
        for at, guess in enumerate(space.first_guesses.tolist())
    )
    shared = blocks[0]
    return DesignSpace(
        [Choice(name=ALGORITHM, options=names), *members[0].knobs],
        constraints=_constraints(members, masks),
        features=shared
        and DesignSpace.FeatureBlock(
            names=(*shared.names, names[0]),
            compute=compute,
            groups=(*shared.groups, ("stored weights", names[:1])),
        ),
        guessed_cost=_guessed_cost(members, masks),
        first_guesses=np.array([[number, *guess] for _, number, guess in guesses], np.int32),
    )


def join_spaces(algorithms: Sequence[Algorithm]) -> DesignSpace:
    """Join spaces into one whose first knob is the algorithm, on which the other knobs depend."""
    spaces = [algorithm.space() for algorithm in algorithms]
    if len(spaces) == 1:
        return spaces[0]
    names = [algorithm.names for algorithm in algorithms]
    knobs: list[Knob] = [Choice(name=ALGORITHM, options=tuple(itertools.chain(*names)))]
    first = 0
    for space, own in zip(spaces, names, strict=True):
        applies = tuple(range(first, first + len(own)))
        knobs += [attrs.evolve(knob, when=(ALGORITHM, applies)) for knob in _own_knobs(space)]
        first += len(own)
    masks: Masks = [partial(_has_algorithm, names=own) for own in names]
    return DesignSpace(
        knobs,
        constraints=_constraints(spaces, masks),
        features=_features(spaces, masks),
        guessed_cost=_guessed_cost(spaces, masks),
        first_guesses=_interleave_first_guesses(
            spaces, names, _likeliest_algorithm(algorithms, spaces)
        ),
        only=_all_configurations(spaces, names),
    )


def _own_knobs(space: DesignSpace) -> Sequence[Knob]:
    """The knobs of a space except the algorithm."""
    return space.knobs[1:] if space.knobs[0].name == ALGORITHM else space.knobs


def _all_configurations(
    spaces: Sequence[DesignSpace], names: Sequence[Sequence[str]]
) -> NDArray[np.int32] | None:
    """All configurations that can be legal, if all spaces are small enough to list; else None.

    Hardly one in ten thousand random index vectors of the joint space is legal.
    """
    parts = [part for space in spaces if (part := space.all_legal) is not None]
    return _joint_configurations(spaces, names, parts) if len(parts) == len(spaces) else None


def _joint_configurations(
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
        part_rows = rows[row : row + len(part)]
        part_rows[:, 0] = first
        if part.shape[1] > knobs:
            part_rows[:, 0] += part[:, 0]
        part_rows[:, column : column + knobs] = part[:, part.shape[1] - knobs :]
        row, column, first = row + len(part), column + knobs, first + len(own)
    return rows


def _has_algorithm(values: Values, names: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each of n configurations has one of the named algorithms, shape (n,)."""
    return np.asarray(np.logical_or.reduce([values[ALGORITHM] == name for name in names]))


def _constraints(spaces: Sequence[DesignSpace], masks: Masks) -> list[Constraint]:
    """The constraints of all spaces, each applied only to configurations of its own space."""

    def restrict(constraint: Constraint, mask: Callable[[Values], NDArray[np.bool_]]) -> Constraint:
        return attrs.evolve(constraint, holds=lambda v: ~mask(v) | constraint.holds(v))

    return [
        restrict(constraint, mask)
        for space, mask in zip(spaces, masks, strict=True)
        for constraint in space.constraints
    ]


def _guessed_cost(
    spaces: Sequence[DesignSpace], masks: Masks
) -> Callable[[Values], NDArray[np.float64]] | None:
    """The estimated cost of configurations of any algorithm; None if one has no estimate."""
    costs = [space.guessed_cost for space in spaces]

    def cost(values: Values) -> NDArray[np.float64]:
        parts = [np.asarray(part(values), np.float64) for part in costs if part is not None]
        return np.select([part(values) for part in masks], parts)

    return None if None in costs else cost


def _features(spaces: Sequence[DesignSpace], masks: Masks) -> DesignSpace.FeatureBlock | None:
    """The features of all algorithms; a configuration has zeros for those of other algorithms."""
    blocks = [space.features_block for space in spaces]
    known = [block for block in blocks if block is not None]
    if len(known) < len(blocks):
        return None

    def compute(values: Values) -> NDArray[np.float64]:
        return np.hstack(
            [
                np.where(mask(values)[:, None], block.compute(values), 0.0)
                for block, mask in zip(known, masks, strict=True)
            ]
        )

    return DesignSpace.FeatureBlock(
        names=tuple(name for block in known for name in block.names),
        compute=compute,
        groups=tuple(group for block in known for group in block.groups),
    )


def _likeliest_algorithm(algorithms: Sequence[Algorithm], spaces: Sequence[DesignSpace]) -> int:
    """The position of the algorithm whose first guess is likely the best."""
    order = [
        (not algorithm.preferred, _least_cost(space), -position)
        for position, (algorithm, space) in enumerate(zip(algorithms, spaces, strict=True))
    ]
    return -min(order)[-1]


def _interleave_first_guesses(
    spaces: Sequence[DesignSpace], names: Sequence[Sequence[str]], likeliest: int
) -> NDArray[np.int32]:
    """First guesses of all algorithms; most, and the first one, are of the likeliest algorithm."""
    rows = _joint_configurations(spaces, names, [space.first_guesses for space in spaces])
    ranks = []
    for position, space in enumerate(spaces):
        number = np.arange(len(space.first_guesses))
        # One guess of each other algorithm follows the first guess of the likeliest algorithm, and
        # then every ``_LIKELIEST_SHARE`` further ones.
        rank = (number + _LIKELIEST_SHARE - 1.0) // _LIKELIEST_SHARE
        ranks.append(rank if position == likeliest else number + 0.5)
    return rows[np.argsort(np.concatenate(ranks), kind="stable")]


def _least_cost(space: DesignSpace) -> float:
    """The guessed cost of the best first guess of a space."""
    assert space.guessed_cost is not None  # noqa: S101 - templates have one
    return float(np.min(space.guessed_cost(space.values(space.first_guesses))))
