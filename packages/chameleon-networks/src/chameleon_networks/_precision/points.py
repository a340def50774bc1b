"""Chooses dtypes from the Pareto front of error and seconds.

The chosen point may be a faster one with some operators put back to float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs
import numpy as np
from chameleon_core.api import NetworkResult, words
from chameleon_core.plugin_api import FLOAT32
from chameleon_tvm.api import display_name, types_in_words

from chameleon_networks._precision.choice import DtypeChoice
from chameleon_networks._precision.exchanged_tensors import exchanged_tensors, execution_order
from chameleon_networks._precision.pareto_front import Floats, spread_evenly
from chameleon_networks._precision.typed_networks import TypedNetworks, Types
from chameleon_networks._quantize.eligibility import find_eligible

MAX_POINTS = 16
"""Most points of the front in a result. The error of each point is simulated with all its dtypes
together."""


class ErrorEstimator(Protocol):
    """Computes the largest |difference| from float32 over the largest |output|."""

    def errors_alone(self, kinds: Iterable[str]) -> Mapping[tuple[int, str], float]:
        """The error if only one fusion group has a reduced dtype, for each operator and dtype."""

    def error_of(self, types: Types) -> float:
        """The error if several fusion groups have other dtypes than float32."""


@attrs.frozen(kw_only=True)
class Point:
    """A choice of dtypes for a network, with its seconds and its error.

    Attributes:
        types: The dtypes of the fusion groups that are not in float32, by index.
        seconds: The seconds of the network's operators, with an estimate for conversions. The
            operators were timed inside networks, or alone if networks could not be profiled.
        error: The error of the outputs, simulated with all dtypes together.
    """

    types: Mapping[int, str]
    seconds: float
    error: float

    def dtype_counts(self, fusions: int) -> dict[str, int]:
        """How many of a network's ``fusions`` fusion groups have each dtype."""
        counts = Counter(self.types.values())
        counts[FLOAT32] = fusions - len(self.types)
        return {kind: count for kind, count in counts.items() if count}

    def row(self, fusions: int, *, delivered: bool) -> NetworkResult.FrontPoint:
        """The point in the form that a result stores."""
        types = self.dtype_counts(fusions)
        return NetworkResult.FrontPoint(
            types=types, seconds=self.seconds, error=self.error, delivered=delivered
        )

    def line(self, fusions: int) -> str:
        """The point as a phrase for the log."""
        counts = ", ".join(f"{n} in {kind}" for kind, n in self.dtype_counts(fusions).items())
        return f"{words.in_seconds(self.seconds)}, error {self.error:.1e}: {counts}"


class ParetoFront:
    """The Pareto front of error and seconds, from which a network's dtypes are chosen.

    Args:
        seconds: Array of shape (operators, dtypes): the seconds of each operator in each dtype
            (``OperatorSeconds.times``).

    Attributes:
        float32: The point with all operators in float32.
        points: The points of the front, by falling seconds, float32 first.
        dominated: The points with one dtype that are no faster than a point with a smaller error.
        notes: Sentences about operators that cannot have a dtype, because it cannot represent their
            numbers.
    """

    def __init__(
        self,
        networks: TypedNetworks,
        kinds: Sequence[str],
        seconds: Floats,
        errors: ErrorEstimator,
        *,
        rate: float,
    ) -> None:
        self._kinds = tuple(kinds)
        self._errors = errors
        self._order = execution_order(networks.network)
        squares = _squares(networks, self._kinds, errors)
        overflows = np.isinf(squares)
        self.notes = tuple(
            f"{count} of {len(seconds)} operators are not computed in {kind}, which does not hold "
            "their numbers"
            for kind, count in zip(self._kinds, overflows.sum(axis=0), strict=True)
            if count
        )
        self._choice = DtypeChoice(
            np.where(overflows, np.inf, seconds)[self._order],
            squares[self._order],
            exchanged_tensors(networks.network, self._kinds, rate),
        )
        predicted = [
            self._point(row.types) for row in spread_evenly(self._choice.front(), MAX_POINTS)
        ]
        self.float32 = predicted[0]
        self._uniform = [
            self._point(self._choice.uniform(column).types) for column in range(1, len(self._kinds))
        ]
        self._all = [*predicted, *self._uniform]
        self.points = _pareto_points(self._all)
        pareto_types = [point.types for point in self.points]
        self.dominated = [point for point in self._uniform if point.types not in pareto_types]

    def fastest_within(self, bound: float) -> Point:
        """The fastest choice of dtypes whose error is within a bound."""
        # A faster point beyond the bound goes back to float32 operator by operator.
        accepted = [point for point in self._all if _is_within(point, bound)]
        best = min(accepted, key=lambda point: point.seconds, default=self.float32)
        rejected = [p for p in self._all if not _is_within(p, bound) and p.seconds < best.seconds]
        if rejected:
            reverted = self.reverted(min(rejected, key=lambda point: point.error), bound)
            best = min((best, reverted), key=lambda point: point.seconds)
        return best

    def reverted(self, point: Point, bound: float) -> Point:
        """Put the operators of a point back to float32 until its error is within a bound."""
        types: tuple[int, ...] | None = self._row(point.types)
        while types is not None and (types := self._choice.revert_one(types)) is not None:
            reverted = self._point(types)
            if _is_within(reverted, bound):
                return reverted
        return self.float32

    def uniform(self, bound: float) -> Point | None:
        """The fastest network with one reduced dtype within a bound, or None if it is no faster."""
        accepted = [
            point
            for point in self._uniform
            if _is_within(point, bound) and point.seconds < self.float32.seconds
        ]
        return min(accepted, key=lambda point: point.seconds, default=None)

    def retimed(self, point: Point) -> Point:
        """A copy of a point, with its seconds computed again from new times of the operators."""
        seconds = self._choice.assignment(self._row(point.types)).seconds
        return attrs.evolve(point, seconds=seconds)

    def _row(self, types: Types) -> tuple[int, ...]:
        return tuple(self._kinds.index(types.get(index, FLOAT32)) for index in self._order)

    def _point(self, row: Sequence[int]) -> Point:
        types = {i: self._kinds[kind] for i, kind in zip(self._order, row, strict=True) if kind}
        return Point(
            types=dict(sorted(types.items())),
            seconds=self._choice.assignment(row).seconds,
            error=self._errors.error_of(types) if types else 0.0,
        )


def _is_within(point: Point, bound: float) -> bool:
    """Whether the error of a point is finite and within a bound. The bound may be infinite."""
    return point.error <= bound and bool(np.isfinite(point.error))


def _pareto_points(points: Sequence[Point]) -> list[Point]:
    """The points that are faster than all others with the same or a smaller error."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.error, point.seconds)):
        if not front or point.seconds < front[-1].seconds:
            front.append(point)
    return front


def _squares(networks: TypedNetworks, kinds: Sequence[str], errors: ErrorEstimator) -> Floats:
    """Array of shape (operators, dtypes): the square of the error of each operator alone."""
    squares = np.zeros((len(networks.fusions), len(kinds)))
    for (index, kind), error in errors.errors_alone(kinds[1:]).items():
        squares[index, kinds.index(kind)] = error**2
    return squares


def float32_reasons(networks: TypedNetworks, kinds: Sequence[str], seconds: Floats) -> list[str]:
    """The reasons why operators stay in float32, apart from their errors.

    Args:
        networks: The object that makes networks with reduced dtypes.
        kinds: The dtypes other than float32.
        seconds: Array of shape (operators, dtypes), float32 first; infinite where no time was
            measured.
    """
    able = {index for kind in kinds for index in networks.reducible(kind)}
    reasons = find_eligible(networks.fusions, kinds[0]).reasons
    named = words.listing(list(dict.fromkeys(map(display_name, kinds))))
    counts: Counter[str] = Counter()
    for index, fusion in enumerate(networks.fusions):
        if getattr(fusion.spec, "dtype", FLOAT32) != FLOAT32:
            continue
        if index not in able:
            counts[reasons.get(index, "what is around it keeps it there")] += 1
        elif not np.isfinite(seconds[index, 1:]).any():
            counts[f"it was not measured in {named}"] += 1
    return [
        f"{count} of {len(networks.fusions)} operators stay in {FLOAT32}, each since {reason}"
        for reason, count in counts.most_common()
    ]


def dtype_counts_text(types: Types, fusions: int) -> str:
    """A phrase that says how many of a network's operators compute in which dtype."""
    return types_in_words([*types.values(), *[FLOAT32] * (fusions - len(types))])
