"""The points of a network's front: types for its chains, what they cost, and how they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs
import numpy as np
from chameleon_core.network_result import FrontPoint
from chameleon_core.words import in_seconds
from chameleon_tvm.types import FLOAT32
from chameleon_tvm.words import types_in_words

from chameleon_networks.precision.choice import TypeChoice
from chameleon_networks.precision.edges import order_of, tensors_of
from chameleon_networks.precision.fronts import Floats, spread
from chameleon_networks.precision.networks import TypedNetworks, Types

POINTS = 16
"""Of the front that are told of, and whose errors are found with all types together."""


class Errors(Protocol):
    """Errors of a network's outputs where chains have types: |difference| over largest |output|.

    ``precision.errors.Simulation`` finds them.
    """

    def errors_alone(self, kinds: Iterable[str]) -> Mapping[tuple[int, str], float]:
        """Of each chain and each type that it can have the error where it alone has it."""

    def error_of(self, types: Types) -> float:
        """The error where several chains have types."""


@attrs.frozen(kw_only=True)
class Point:
    """A network with types.

    Attributes:
        types: of the chains that are not in float32, by place.
        seconds: of its operators as they were measured in networks (alone, where networks could not
            be profiled), with what conversions are estimated to take.
        error: of its outputs, simulated with all types together.
    """

    types: Mapping[int, str]
    seconds: float
    error: float

    def counted(self, chains: int) -> dict[str, int]:
        """How many chains have each type, of so many."""
        counts = Counter(self.types.values())
        counts[FLOAT32] = chains - len(self.types)
        return {kind: count for kind, count in counts.items() if count}

    def told(self, chains: int, *, delivered: bool) -> FrontPoint:
        """The point as a result has it."""
        types = self.counted(chains)
        return FrontPoint(types=types, seconds=self.seconds, error=self.error, delivered=delivered)

    def line(self, chains: int) -> str:
        """The point in words."""
        counts = ", ".join(f"{count} in {kind}" for kind, count in self.counted(chains).items())
        return f"{in_seconds(self.seconds)}, error {self.error:.1e}: {counts}"


class Front:
    """What types may be chosen among.

    Args:
        networks: of the types.
        kinds: the types, float32 first.
        seconds: of each chain in each type, of shape (chains, types); see ``OperatorSeconds``.
        errors: of types.
        rate: bytes that converting a tensor reads or writes in a second.

    Attributes:
        float32: the point that has no types.
        points: of the front, by falling seconds, float32 first.
        dominated: networks in one type that are no faster than a point with a smaller error.
        told: sentences about operators that cannot have a type, since numbers pass what it holds.
    """

    def __init__(
        self,
        networks: TypedNetworks,
        kinds: Sequence[str],
        seconds: Floats,
        errors: Errors,
        *,
        rate: float,
    ) -> None:
        self._kinds = tuple(kinds)
        self._errors = errors
        self._order = order_of(networks.network)
        squares = _squares(networks, self._kinds, errors)
        beyond = np.isinf(squares)
        self.told = tuple(
            f"{count} of {len(seconds)} operators are not computed in {kind}, which does not hold "
            "their numbers"
            for kind, count in zip(self._kinds, beyond.sum(axis=0), strict=True)
            if count
        )
        self._choice = TypeChoice(
            np.where(beyond, np.inf, seconds)[self._order],
            squares[self._order],
            tensors_of(networks.network, self._kinds, rate),
        )
        predicted = [self._point(one.types) for one in spread(self._choice.front(), POINTS)]
        self.float32 = predicted[0]
        self._uniform = [
            self._point(self._choice.uniform(place).types) for place in range(1, len(self._kinds))
        ]
        self._all = [*predicted, *self._uniform]
        self.points = _undominated(self._all)
        known = [one.types for one in self.points]
        self.dominated = [one for one in self._uniform if one.types not in known]

    def within(self, bound: float) -> Point:
        """The fastest point within a bound; others of its kind are tried where errors add up.

        From the fastest point on that is over the bound, operators go back to float32 until it
        holds: what comes of that may be faster than any point of the front that holds it.
        """
        holding = [one for one in self._all if _holds(one, bound)]
        best = min(holding, key=lambda one: one.seconds, default=self.float32)
        over = [one for one in self._all if not _holds(one, bound) and one.seconds < best.seconds]
        if over:
            eased = self.eased(min(over, key=lambda one: one.error), bound)
            best = min((best, eased), key=lambda one: one.seconds)
        return best

    def eased(self, point: Point, bound: float) -> Point:
        """A point with as many operators back in float32 as it takes to hold a bound.

        Args:
            point: at least one operator of which goes back, where any is not in float32.
            bound: on the error, simulated with all types together.
        """
        types: tuple[int, ...] | None = self._row(point.types)
        while types is not None and (types := self._choice.eased(types)) is not None:
            eased = self._point(types)
            if _holds(eased, bound):
                return eased
        return self.float32

    def uniform(self, bound: float) -> Point | None:
        """The fastest point of one type within a bound; None where none is faster than float32."""
        holding = [
            one
            for one in self._uniform
            if _holds(one, bound) and one.seconds < self.float32.seconds
        ]
        return min(holding, key=lambda one: one.seconds, default=None)

    def timed(self, point: Point) -> Point:
        """A point with the seconds that this front knows."""
        seconds = self._choice.assignment(self._row(point.types)).seconds
        return attrs.evolve(point, seconds=seconds)

    def _row(self, types: Types) -> tuple[int, ...]:
        return tuple(self._kinds.index(types.get(place, FLOAT32)) for place in self._order)

    def _point(self, row: Sequence[int]) -> Point:
        types = {
            place: self._kinds[kind] for place, kind in zip(self._order, row, strict=True) if kind
        }
        return Point(
            types=dict(sorted(types.items())),
            seconds=self._choice.assignment(row).seconds,
            error=self._errors.error_of(types) if types else 0.0,
        )


def _holds(point: Point, bound: float) -> bool:
    """Whether a point's error is within a bound, which may be infinite, and is one at all."""
    return point.error <= bound and bool(np.isfinite(point.error))


def _undominated(points: Sequence[Point]) -> list[Point]:
    """The points that no other one dominates as simulated, by falling seconds."""
    found: list[Point] = []
    for one in sorted(points, key=lambda point: (point.error, point.seconds)):
        if not found or one.seconds < found[-1].seconds:
            found.append(one)
    return found


def _squares(networks: TypedNetworks, kinds: Sequence[str], errors: Errors) -> Floats:
    """Squares of the errors of each chain alone in each type, of shape (chains, types)."""
    found = np.zeros((len(networks.chains), len(kinds)))
    for (place, kind), error in errors.errors_alone(kinds[1:]).items():
        found[place, kinds.index(kind)] = error**2
    return found


def in_words(types: Types, chains: int) -> str:
    """The precision of a network of so many chains, with types of some; see ``types_in_words``."""
    return types_in_words([*types.values(), *[FLOAT32] * (chains - len(types))])


__all__ = ["POINTS", "Errors", "Front", "Point", "in_words"]
