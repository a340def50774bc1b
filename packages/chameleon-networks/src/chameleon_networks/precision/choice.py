"""Which type each operator of a network is computed in: the front of error against seconds.

A labelling with pairwise costs and a budget: an operator has a time and an error in each type, and
where two of different types exchange a tensor, converting it takes time as well. The operators are
placed one after the other, in the network's order. Of what is placed only the types of tensors
that are still to be read matter, so that among partial assignments that agree in these all that
are dominated, in error and in seconds, can be forgotten: dynamic programming on the front, exact
as long as fronts are short. Where they grow long, each keeps the fastest assignment of each of many
intervals of the error, and what is found is improved by moves of single operators.

Errors are numbers that add up, as the squares of what each operator's rounding alone does to the
outputs: roundings of different operators are all but independent, so that variances add up. That is
an estimate, enough to rank assignments; what is delivered is verified with all types together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks.precision.fronts import (
    LABELS,
    Assignment,
    Floats,
    front_of,
    thinned,
    undominated,
)

Types = NDArray[np.byte]
"""Types of operators as places in the list of types, of shape (assignments, operators)."""

_MOVES = 50
"""Moves of single operators that may improve one assignment."""


@attrs.frozen(kw_only=True, eq=False)
class Tensor:
    """What one operator computes and others read.

    Attributes:
        producer: the operator's place; None for an input of the network, which is in float32.
        consumers: places of the operators that read it.
        conversions: seconds of converting it, of shape (types, types): from, to; paid once for
            each type that it is read in. 0 both ways between types that read the same, as those
            that differ by their weights alone.
        kept: whether something that is no operator reads it in float32, such as an output.
    """

    producer: int | None
    consumers: tuple[int, ...]
    conversions: Floats
    kept: bool = False

    @cached_property
    def alike(self) -> NDArray[np.bool_]:
        """Which types read it in one form, which is made once for all, of shape (types, types)."""
        nothing: NDArray[np.bool_] = self.conversions == 0.0
        return nothing & nothing.T


class TypeChoice:
    """The choice of types for the operators of a network.

    Args:
        seconds: of each operator in each type, of shape (operators, types), with how often it
            occurs counted; infinite where it cannot be computed in a type, which for the first
            type, float32, none is.
        errors: what each operator in each type adds, of the same shape; 0 in float32.
        tensors: between the operators; each producer comes before its consumers.
        labels: partial assignments that are kept at a time.

    Raises:
        ValueError: shapes do not fit, or an operator has no time in float32.
    """

    def __init__(
        self,
        seconds: Floats,
        errors: Floats,
        tensors: Sequence[Tensor],
        *,
        labels: int = LABELS,
    ) -> None:
        self.seconds = np.asarray(seconds, np.float64)
        self.errors = np.where(np.isfinite(self.seconds), np.asarray(errors, np.float64), np.inf)
        if self.seconds.ndim != 2 or self.seconds.shape != self.errors.shape:  # noqa: PLR2004
            raise ValueError("'seconds' and 'errors' must both be of shape (operators, types)")
        if not np.isfinite(self.seconds[:, 0]).all():
            raise ValueError("an operator has no time in float32")
        self.tensors = tuple(tensors)
        self._labels = labels
        self._read_by = [
            [one for one in self.tensors if place in one.consumers]
            for place in range(len(self.seconds))
        ]

    def evaluated(self, types: Types) -> tuple[Floats, Floats]:
        """Errors and seconds of whole assignments.

        Args:
            types: of shape (assignments, operators).

        Returns:
            Two arrays of shape (assignments,).
        """
        places = np.arange(types.shape[1])
        errors = self.errors[places, types].sum(axis=1)
        seconds = self.seconds[places, types].sum(axis=1)
        for place in places:
            seconds += self._conversions(types, int(place))
        return errors, seconds

    def assignment(self, types: Sequence[int]) -> Assignment:
        """One assignment with its error and seconds."""
        row = np.array([types], np.byte)
        [error], [seconds] = self.evaluated(row)
        return Assignment(types=tuple(map(int, types)), error=float(error), seconds=float(seconds))

    def uniform(self, kind: int) -> Assignment:
        """All operators in one type, those that cannot be in float32."""
        able = np.isfinite(self.seconds[:, kind])
        return self.assignment(np.where(able, kind, 0).tolist())

    def front(self, *, bound: float = np.inf) -> list[Assignment]:
        """The assignments that no other one dominates, by rising error and falling seconds.

        Args:
            bound: largest error.

        Returns:
            At least float32 alone, the first one. For each type the uniform assignment, where it
            is within the bound, is in the front or dominated by one in it.
        """
        types, exact = self._placed(bound)
        found = self._as_assignments(types)
        found += [
            one
            for kind in range(self.seconds.shape[1])
            if (one := self.uniform(kind)).error <= bound
        ]
        if not exact:
            found = [self._improved(one) for one in front_of(found)]
        return front_of(found)

    def eased(self, types: Sequence[int]) -> tuple[int, ...] | None:
        """The assignment with one operator back in float32; None where all are.

        Args:
            types: an assignment.

        Returns:
            Without the operator that adds most error for each second that it saves.
        """
        given = np.array(types, np.byte)
        reduced = np.flatnonzero(given)
        if not len(reduced):
            return None
        rows = np.repeat(given[None], len(reduced), axis=0)
        rows[np.arange(len(reduced)), reduced] = 0
        _, seconds = self.evaluated(rows)
        saved = seconds - self.assignment(types).seconds
        added = self.errors[reduced, given[reduced]]
        # What saves nothing goes first, with the largest error in front.
        order = np.lexsort((-added, -added / np.maximum(saved, 1e-30), saved > 0.0))
        return tuple(map(int, rows[order[0]]))

    # -- placing one operator after the other ------------------------------------------------

    def _placed(self, bound: float) -> tuple[Types, bool]:
        """Whole assignments that are not dominated, and whether none was dropped but for that."""
        operators, kinds = self.seconds.shape
        types = np.zeros((1, operators), np.byte)
        errors, seconds = np.zeros(1), np.zeros(1)
        exact = True
        for place in range(operators):
            able = [kind for kind in range(kinds) if np.isfinite(self.seconds[place, kind])]
            types = np.tile(types, (len(able), 1))
            types[:, place] = np.repeat(np.array(able, np.byte), len(errors))
            chosen = types[:, place]
            errors = np.tile(errors, len(able)) + self.errors[place, chosen]
            seconds = np.tile(seconds, len(able)) + self.seconds[place, chosen]
            seconds += self._conversions(types, place)
            kept = np.flatnonzero(errors <= bound)
            states = self._states(types[kept], place)
            rows = kept[undominated(states, errors[kept], seconds[kept])]
            if len(rows) > self._labels:
                exact = False
                agreeing = self._states(types[rows], place)
                rows = thinned(rows, agreeing, errors, seconds, most=self._labels)
            types, errors, seconds = types[rows], errors[rows], seconds[rows]
        return types, exact

    def _conversions(self, types: Types, place: int) -> Floats:
        """Seconds of converting what an operator reads, where nobody before it needed the same.

        What it computes is converted here as well where something that is no operator reads it.
        """
        wanted = types[:, place]
        total = np.zeros(len(types))
        for tensor in self.tensors:
            if tensor.kept and tensor.producer == place:
                total += tensor.conversions[wanted, 0]
        for tensor in self._read_by[place]:
            seconds = tensor.conversions[self._made_in(tensor, types), wanted]
            for earlier in tensor.consumers:
                if earlier < place:
                    seconds = np.where(tensor.alike[types[:, earlier], wanted], 0.0, seconds)
            if tensor.kept:
                # Float32 is made of it anyway.
                seconds = np.where(wanted == 0, 0.0, seconds)
            total += seconds
        return total

    def _made_in(self, tensor: Tensor, types: Types) -> Types:
        if tensor.producer is None:
            return np.zeros(len(types), np.byte)
        made: Types = types[:, tensor.producer]
        return made

    def _states(self, types: Types, place: int) -> NDArray[np.intp]:
        """Which partial assignments agree in all that later operators see of them."""
        columns = []
        for tensor in self.tensors:
            producer = -1 if tensor.producer is None else tensor.producer
            if producer > place or max(tensor.consumers, default=-1) <= place:
                continue
            made = self._made_in(tensor, types).astype(np.int64)
            read = np.zeros(len(types), np.int64)
            for consumer in tensor.consumers:
                if consumer <= place:
                    read |= np.int64(1) << types[:, consumer].astype(np.int64)
            columns.append(made << self.seconds.shape[1] | read)
        if not columns:
            return np.zeros(len(types), np.intp)
        _, states = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return states.reshape(-1)

    # -- improving where fronts were thinned -------------------------------------------------

    def _improved(self, given: Assignment) -> Assignment:
        """An assignment after moves of single operators that make it faster and no less exact."""
        operators, kinds = self.seconds.shape
        best = given
        for _ in range(_MOVES):
            rows = np.repeat(np.array([best.types], np.byte), operators * kinds, axis=0)
            places = np.arange(operators * kinds)
            rows[places, places // kinds] = places % kinds
            errors, seconds = self.evaluated(rows)
            seconds = np.where(errors <= given.error, seconds, np.inf)
            row = int(seconds.argmin())
            if not seconds[row] < best.seconds:
                break
            best = self.assignment(rows[row].tolist())
        return best

    def _as_assignments(self, types: Types) -> list[Assignment]:
        errors, seconds = self.evaluated(types)
        return [
            Assignment(types=tuple(row), error=float(error), seconds=float(took))
            for row, error, took in zip(types.tolist(), errors, seconds, strict=True)
        ]
