"""The points of a network's front: types for its chains, their costs, and their rows in results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs
import numpy as np
from chameleon_core.network_result import FrontPoint
from chameleon_core.words import in_seconds, listing
from chameleon_tvm.types import FLOAT32, display_name
from chameleon_tvm.words import types_in_words

from chameleon_networks.precision.choice import TypeChoice
from chameleon_networks.precision.edges import order_of, tensors_of
from chameleon_networks.precision.fronts import Floats, spread
from chameleon_networks.precision.networks import TypedNetworks, Types
from chameleon_networks.quantize.eligibility import eligible

POINTS = 16
"""Points of the front in a result, whose errors are simulated with all types together."""


class Errors(Protocol):
    """Errors of a network's outputs if chains have types: |difference| over largest |output|.

    ``precision.errors.Simulation`` finds them.
    """

    def errors_alone(self, kinds: Iterable[str]) -> Mapping[tuple[int, str], float]:
        """The error of each chain alone in each type that it can have."""

    def error_of(self, types: Types) -> float:
        """The error if several chains have types."""


@attrs.frozen(kw_only=True)
class Point:
    """A network with types.

    Attributes:
        types: of the chains that are not in float32, by place.
        seconds: of its operators as they were measured in networks (alone, if networks could not be
            profiled), with an estimate of conversions.
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

    def row(self, chains: int, *, delivered: bool) -> FrontPoint:
        """The point as a result has it."""
        types = self.counted(chains)
        return FrontPoint(types=types, seconds=self.seconds, error=self.error, delivered=delivered)

    def line(self, chains: int) -> str:
        """The point in words."""
        counts = ", ".join(f"{count} in {kind}" for kind, count in self.counted(chains).items())
        return f"{in_seconds(self.seconds)}, error {self.error:.1e}: {counts}"


class Front:
    """The points that types may be chosen among.

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
        notes: sentences about operators that cannot have a type, since numbers pass what it holds.
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
        self.notes = tuple(
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
        predicted = [self._point(row.types) for row in spread(self._choice.front(), POINTS)]
        self.float32 = predicted[0]
        self._uniform = [
            self._point(self._choice.uniform(column).types) for column in range(1, len(self._kinds))
        ]
        self._all = [*predicted, *self._uniform]
        self.points = _undominated(self._all)
        known = [point.types for point in self.points]
        self.dominated = [point for point in self._uniform if point.types not in known]

    def within(self, bound: float) -> Point:
        """The fastest point within a bound; others of its kind are tried if errors add up.

        From the fastest point on that is over the bound, operators go back to float32 until it
        holds. The result may be faster than any point of the front that holds it.
        """
        holding = [point for point in self._all if _holds(point, bound)]
        best = min(holding, key=lambda point: point.seconds, default=self.float32)
        over = [p for p in self._all if not _holds(p, bound) and p.seconds < best.seconds]
        if over:
            eased = self.eased(min(over, key=lambda point: point.error), bound)
            best = min((best, eased), key=lambda point: point.seconds)
        return best

    def eased(self, point: Point, bound: float) -> Point:
        """A point with as many operators back in float32 as it takes to hold a bound.

        Args:
            point: at least one operator of which goes back, if any is not in float32.
            bound: on the error, simulated with all types together.
        """
        types: tuple[int, ...] | None = self._row(point.types)
        while types is not None and (types := self._choice.eased(types)) is not None:
            eased = self._point(types)
            if _holds(eased, bound):
                return eased
        return self.float32

    def uniform(self, bound: float) -> Point | None:
        """The fastest point of one type within a bound; None if none is faster than float32."""
        holding = [
            point
            for point in self._uniform
            if _holds(point, bound) and point.seconds < self.float32.seconds
        ]
        return min(holding, key=lambda point: point.seconds, default=None)

    def timed(self, point: Point) -> Point:
        """A point with the seconds that this front knows."""
        seconds = self._choice.assignment(self._row(point.types)).seconds
        return attrs.evolve(point, seconds=seconds)

    def _row(self, types: Types) -> tuple[int, ...]:
        return tuple(self._kinds.index(types.get(index, FLOAT32)) for index in self._order)

    def _point(self, row: Sequence[int]) -> Point:
        types = {
            index: self._kinds[kind] for index, kind in zip(self._order, row, strict=True) if kind
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
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.error, point.seconds)):
        if not front or point.seconds < front[-1].seconds:
            front.append(point)
    return front


def _squares(networks: TypedNetworks, kinds: Sequence[str], errors: Errors) -> Floats:
    """Squares of the errors of each chain alone in each type, of shape (chains, types)."""
    squares = np.zeros((len(networks.chains), len(kinds)))
    for (index, kind), error in errors.errors_alone(kinds[1:]).items():
        squares[index, kinds.index(kind)] = error**2
    return squares


def why_float32(networks: TypedNetworks, kinds: Sequence[str], seconds: Floats) -> list[str]:
    """The reasons that keep operators in float32 before anything is known of their errors.

    Args:
        networks: of the types.
        kinds: types beside float32.
        seconds: of each chain in each type, of shape (chains, types), float32 first; infinite if a
            chain was not measured in the type.

    Returns:
        A sentence without its end for each reason, the most frequent one first.
    """
    able = {index for kind in kinds for index in networks.able(kind)}
    reasons = eligible(networks.chains, kinds[0]).reasons
    named = listing(list(dict.fromkeys(map(display_name, kinds))))
    counts: Counter[str] = Counter()
    for index, chain in enumerate(networks.chains):
        if getattr(chain.spec, "dtype", FLOAT32) != FLOAT32:
            continue
        if index not in able:
            counts[reasons.get(index, "what is around it keeps it there")] += 1
        elif not np.isfinite(seconds[index, 1:]).any():
            counts[f"it was not measured in {named}"] += 1
    return [
        f"{count} of {len(networks.chains)} operators stay in {FLOAT32}, each since {reason}"
        for reason, count in counts.most_common()
    ]


def in_words(types: Types, chains: int) -> str:
    """The precision of a network of so many chains, with types of some; see ``types_in_words``."""
    return types_in_words([*types.values(), *[FLOAT32] * (chains - len(types))])
