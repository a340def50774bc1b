"""Chooses a dtype for each operator by error and seconds, conversions included.

Dynamic programming over the operators keeps Pareto-optimal partial assignments, thinned if they are
many, and local search improves them. Squared errors of single operators add up, because roundings
are nearly independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks._precision.pareto_front import (
    MAX_PARTIAL_ASSIGNMENTS,
    Assignment,
    Floats,
    pareto_front,
    pareto_rows,
    thin,
)

Types = NDArray[np.byte]
"""Array of shape (assignments, operators): the index of each operator's dtype."""

_MAX_CHANGES = 50
"""Most changes of single operators that may improve one assignment."""


@attrs.frozen(kw_only=True, eq=False)
class Tensor:
    """A tensor that one operator computes and others read.

    Attributes:
        producer: The index of the operator that computes the tensor. None for an input of the
            network, which is in float32.
        consumers: The indices of the operators that read the tensor.
        conversions: Array of shape (dtypes, dtypes): seconds to convert the tensor from the first
            dtype to the second. A conversion is paid once for each dtype that the tensor is read
            in. If two dtypes differ only in their weights, the conversion takes 0 seconds.
        in_float32: Whether something other than an operator reads the tensor in float32, such as an
            output of the network.
    """

    producer: int | None
    consumers: tuple[int, ...]
    conversions: Floats
    in_float32: bool = False

    @cached_property
    def free_conversions(self) -> NDArray[np.bool_]:
        """Whether dtypes need no conversion of a tensor, bool of shape (dtypes, dtypes)."""
        nothing: NDArray[np.bool_] = self.conversions == 0.0
        return nothing & nothing.T


class DtypeChoice:
    """The choice of dtypes for the operators of a network.

    Args:
        seconds: Array of shape (operators, dtypes): seconds of all occurrences of each operator.
            Infinite if an operator cannot have a dtype. The first dtype is float32, which must be
            finite.
    """

    def __init__(
        self,
        seconds: Floats,
        errors: Floats,
        tensors: Sequence[Tensor],
        *,
        labels: int = MAX_PARTIAL_ASSIGNMENTS,
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
            [tensor for tensor in self.tensors if index in tensor.consumers]
            for index in range(len(self.seconds))
        ]

    def evaluate(self, types: Types) -> tuple[Floats, Floats]:
        """Compute the network's error and seconds for one or several choices of dtypes.

        Args:
            types: Array of shape (choices, operators): the index of each operator's dtype.

        Returns:
            Two arrays of shape (choices,): errors and seconds.
        """
        places = np.arange(types.shape[1])
        errors = self.errors[places, types].sum(axis=1)
        seconds = self.seconds[places, types].sum(axis=1)
        for index in places:
            seconds += self._conversions(types, int(index))
        return errors, seconds

    def assignment(self, types: Sequence[int]) -> Assignment:
        """Make an ``Assignment`` of dtype indices, with its error and seconds."""
        row = np.array([types], np.byte)
        [error], [seconds] = self.evaluate(row)
        return Assignment(types=tuple(map(int, types)), error=float(error), seconds=float(seconds))

    def uniform(self, dtype: int) -> Assignment:
        """The assignment that gives all operators the same dtype, as far as possible."""
        return self.assignment(np.where(np.isfinite(self.seconds[:, dtype]), dtype, 0).tolist())

    def front(self) -> list[Assignment]:
        """The Pareto-optimal assignments, by rising error, float32 first."""
        types, exact = self._assign_in_order()
        assignments = self._as_assignments(types)
        assignments += map(self.uniform, range(self.seconds.shape[1]))
        if not exact:
            assignments = [self._local_search(start) for start in pareto_front(assignments)]
        return pareto_front(assignments)

    def revert_one(self, types: Sequence[int]) -> tuple[int, ...] | None:
        """Put the operator with the most error per saved second back to float32, or None."""
        current = np.array(types, np.byte)
        reduced = np.flatnonzero(current)
        if not len(reduced):
            return None
        rows = np.repeat(current[None], len(reduced), axis=0)
        rows[np.arange(len(reduced)), reduced] = 0
        _, seconds = self.evaluate(rows)
        saved = seconds - self.assignment(types).seconds
        added = self.errors[reduced, current[reduced]]
        # An operator that saves no time goes first, that with the largest error in front.
        order = np.lexsort((-added, -added / np.maximum(saved, 1e-30), saved > 0.0))
        return tuple(map(int, rows[order[0]]))

    # -- dynamic programming over the operators ------------------------------------------------

    def _assign_in_order(self) -> tuple[Types, bool]:
        """Pareto-optimal complete assignments, and whether none was dropped."""
        operators, dtype_count = self.seconds.shape
        types = np.zeros((1, operators), np.byte)
        errors, seconds = np.zeros(1), np.zeros(1)
        exact = True
        for index in range(operators):
            possible = [d for d in range(dtype_count) if np.isfinite(self.seconds[index, d])]
            types = np.tile(types, (len(possible), 1))
            types[:, index] = np.repeat(np.array(possible, np.byte), len(errors))
            chosen = types[:, index]
            errors = np.tile(errors, len(possible)) + self.errors[index, chosen]
            seconds = np.tile(seconds, len(possible)) + self.seconds[index, chosen]
            seconds += self._conversions(types, index)
            states = self._states(types, index)
            rows = pareto_rows(states, errors, seconds)
            if len(rows) > self._labels:
                exact = False
                rows = thin(rows, states[rows], errors, seconds, most=self._labels)
            types, errors, seconds = types[rows], errors[rows], seconds[rows]
        return types, exact

    def _conversions(self, types: Types, index: int) -> Floats:
        """Seconds to convert an operator's inputs and output, unless an earlier one needs it."""
        read_dtype = types[:, index]
        total = np.zeros(len(types))
        for tensor in self.tensors:
            if tensor.in_float32 and tensor.producer == index:
                total += tensor.conversions[read_dtype, 0]
        for tensor in self._read_by[index]:
            seconds = tensor.conversions[self._types_of(tensor, types), read_dtype]
            for earlier in tensor.consumers:
                if earlier < index:
                    seconds = np.where(
                        tensor.free_conversions[types[:, earlier], read_dtype], 0.0, seconds
                    )
            if tensor.in_float32:
                # The tensor is converted to float32 anyway.
                seconds = np.where(read_dtype == 0, 0.0, seconds)
            total += seconds
        return total

    def _types_of(self, tensor: Tensor, types: Types) -> Types:
        if tensor.producer is None:
            return np.zeros(len(types), np.byte)
        column: Types = types[:, tensor.producer]
        return column

    def _states(self, types: Types, index: int) -> NDArray[np.intp]:
        """Numbers of partial assignments, equal if later operators cannot tell them apart."""
        columns = []
        for tensor in self.tensors:
            producer = -1 if tensor.producer is None else tensor.producer
            if producer > index or max(tensor.consumers, default=-1) <= index:
                continue
            producer_dtype = self._types_of(tensor, types).astype(np.int64)
            read_dtypes = np.zeros(len(types), np.int64)
            for consumer in tensor.consumers:
                if consumer <= index:
                    read_dtypes |= np.int64(1) << types[:, consumer].astype(np.int64)
            columns.append(producer_dtype << self.seconds.shape[1] | read_dtypes)
        if not columns:
            return np.zeros(len(types), np.intp)
        _, states = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return states.reshape(-1)

    # -- local search, if assignments were dropped -------------------------------------------------

    def _local_search(self, start: Assignment) -> Assignment:
        """Change single operators of an assignment while that saves time without more error."""
        operators, dtype_count = self.seconds.shape
        best = start
        for _ in range(_MAX_CHANGES):
            rows = np.repeat(np.array([best.types], np.byte), operators * dtype_count, axis=0)
            places = np.arange(operators * dtype_count)
            rows[places, places // dtype_count] = places % dtype_count
            errors, seconds = self.evaluate(rows)
            seconds = np.where(errors <= start.error, seconds, np.inf)
            row = int(seconds.argmin())
            if not seconds[row] < best.seconds:
                break
            best = self.assignment(rows[row].tolist())
        return best

    def _as_assignments(self, types: Types) -> list[Assignment]:
        errors, seconds = self.evaluate(types)
        return [
            Assignment(types=tuple(row), error=float(error), seconds=float(seconds_of))
            for row, error, seconds_of in zip(types.tolist(), errors, seconds, strict=True)
        ]
