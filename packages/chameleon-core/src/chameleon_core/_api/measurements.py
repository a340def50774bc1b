"""The measurements of one operator or function as arrays, read from the store at first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._store.records import RecordStore
from chameleon_core._words import did_you_mean

ASKED = "asked/{task}/{number}"
"""Key under which a store keeps one round of an ask-and-tell search."""


@attrs.frozen(kw_only=True)
class Trial:
    """One configuration and its measurement.

    Attributes:
        configuration: the value of each knob by its name.
        config: the index of each knob's value, in the order of the space's knobs.
        seconds: the median of the repeats in seconds, or None if the configuration failed.
        failure: the kind of failure, or None if the configuration succeeded.
        message: the description of the failure; empty if the configuration succeeded.
        origin: the stage that proposed the configuration, a ``Measurement.Origin``; None if no
            record names the stage.
        other: numbers that the user's program reported beside the time, by name.
    """

    configuration: Mapping[str, Any]
    config: tuple[int, ...]
    seconds: float | None
    failure: FailureKind | None = None
    message: str = ""
    origin: str | None = None
    other: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Rows:
    """The measurements that a store holds of one task, in the order in which they arrived.

    Attributes:
        measurements: the measurements.
        configurations: the knob values of each measurement, by knob name.
        origins: the stage that proposed each configuration, a ``Measurement.Origin``, or None if no
            record names the stage.
        measured_at: time of each measurement in seconds since 1970.
        other: for each configuration, the quantities that the user reported beside the time, by
            name.
    """

    measurements: Sequence[Measurement]
    configurations: Sequence[Mapping[str, Any]]
    origins: Sequence[str | None]
    measured_at: Sequence[float]
    other: Mapping[tuple[int, ...], Mapping[str, float]]

    @classmethod
    def of(cls, store: RecordStore, task_id: int) -> Rows:
        """Read all rows of a task from a store."""
        return cls(
            measurements=store.measurements(task_id),
            configurations=store.decoded(task_id),
            origins=store.origins(task_id),
            measured_at=store.measured_at(task_id),
            other=other_quantities(store, task_id),
        )


def rounds(store: RecordStore, task_id: int) -> Iterator[dict[str, Any]]:
    """Yield the finished rounds of a ``Tuner``'s search as the store has them, oldest first.

    A round is one call of ``ask`` with its reported values. A run of a pipeline stores no rounds,
    so nothing is yielded for its tasks.

    Args:
        store: the record store of the search.
        task_id: the number of the task's row in the store.
    """
    number = 0
    while (asked := store.fact(ASKED.format(task=task_id, number=number))) is not None:
        yield asked
        number += 1


def other_quantities(store: RecordStore, task_id: int) -> dict[tuple[int, ...], dict[str, float]]:
    """Read the quantities besides the time that the user of a ``Tuner`` reported, such as energy.

    Args:
        store: the record store of the search.
        task_id: the number of the task's row in the store.

    Returns:
        For the knob indices of each configuration, the reported numbers by the quantity's name.
    """
    quantities: dict[tuple[int, ...], dict[str, float]] = {}
    for asked in rounds(store, task_id):
        for name, numbers in asked["other"].items():
            for config, value in numbers:
                quantities.setdefault(tuple(config), {})[name] = value
    return quantities


class Measurements(Sequence[Trial]):
    """The measurements of one operator or function, in the order in which they arrived.

    Nothing is read until you first use an array or an entry. Then all measurements stored at that
    moment are read, and later ones do not appear.

    Args:
        read: a function that reads the rows from the store.
    """

    def __init__(self, read: Callable[[], Rows]) -> None:
        self._read = read

    @cached_property
    def _rows(self) -> Rows:
        return self._read()

    def __len__(self) -> int:
        return len(self._rows.measurements)

    @overload
    def __getitem__(self, index: int) -> Trial: ...

    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...

    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        rows = self._rows
        measurement = rows.measurements[index]
        return Trial(
            configuration=rows.configurations[index],
            config=measurement.config,
            seconds=measurement.cost if measurement.ok else None,
            failure=measurement.failure,
            message=measurement.message,
            origin=rows.origins[index],
            other=rows.other.get(measurement.config, {}),
        )

    # -- arrays -------------------------------------------------------------------------------

    @cached_property
    def configs(self) -> NDArray[np.int32]:
        """Knob indices of each configuration, shape (n, knobs)."""
        configs = [measurement.config for measurement in self._rows.measurements]
        width = len(configs[0]) if configs else 0
        return np.array(configs, np.int32).reshape(-1, width)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """The time of each configuration in seconds, shape (n,): the median of its repeats.

        The time of a failed configuration is infinity.
        """
        return np.array([measurement.cost for measurement in self._rows.measurements], np.float64)

    @cached_property
    def max_relative_error(self) -> NDArray[np.float64]:
        """The largest relative error of each configuration's outputs, shape (n,).

        It is the largest difference from the reference's output, divided by the reference's largest
        magnitude.

        An entry is NaN if the outputs were not compared.
        """
        return self.quantity("max_relative_error")

    @cached_property
    def build_seconds(self) -> NDArray[np.float64]:
        """Wall-clock time of each configuration's build in seconds, shape (n,)."""
        return self.quantity("build_seconds")

    @cached_property
    def run_seconds(self) -> NDArray[np.float64]:
        """Wall-clock time of each configuration's check and timing in seconds, shape (n,)."""
        return self.quantity("run_seconds")

    @cached_property
    def measured_at(self) -> NDArray[np.float64]:
        """Time of each measurement's arrival, in seconds since 1970, shape (n,)."""
        return np.array(self._rows.measured_at, np.float64)

    @property
    def failures(self) -> tuple[FailureKind | None, ...]:
        """The kind of failure of each configuration, or None if the configuration succeeded."""
        return tuple(measurement.failure for measurement in self._rows.measurements)

    @property
    def origins(self) -> tuple[str | None, ...]:
        """The stage that proposed each configuration, a ``Measurement.Origin``.

        An entry is None if no record names the stage.
        """
        return tuple(self._rows.origins)

    @property
    def configurations(self) -> tuple[Mapping[str, Any], ...]:
        """The knob values of each configuration, by knob name."""
        return tuple(self._rows.configurations)

    # -- several quantities -------------------------------------------------------------------

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the quantities that ``quantity`` accepts.

        First come the quantities that every run has, then those that the user reported.
        """
        names = dict.fromkeys(name for numbers in self._rows.other.values() for name in numbers)
        return (*_QUANTITIES, *names)

    def quantity(self, name: str) -> NDArray[np.float64]:
        """The values of one quantity for all configurations, shape (n,).

        A value that is missing is NaN. The time of a failed configuration is infinity.

        Args:
            name: the name of the quantity, one of ``quantities``.

        Raises:
            ConfigError: ``quantities`` does not contain this name.
        """
        if name == "seconds":
            return self.seconds
        if name in Measurement.NUMBERS:
            # NumPy turns None into NaN.
            numbers = [getattr(measurement, name) for measurement in self._rows.measurements]
            return np.array(numbers, np.float64)
        if name not in self.quantities:
            raise ConfigError(
                f"no quantity '{name}' is stored{did_you_mean(name, self.quantities)}",
                hint=f"stored are {', '.join(self.quantities)}",
            )
        other = self._rows.other
        values = [other.get(row.config, {}).get(name, np.nan) for row in self._rows.measurements]
        return np.array(values, np.float64)

    def front(self, quantities: Sequence[str]) -> list[Trial]:
        """The Pareto front: the configurations that no other configuration dominates.

        A configuration dominates another one if it is at least as good in every quantity, and
        better in at least one.

        Lower is better for every quantity. Failures are left out, and so are configurations that
        lack a quantity.

        Args:
            quantities: names of quantities, such as ``("seconds", "max_relative_error")``.

        Returns:
            The front, sorted by the first quantity.

        Raises:
            ConfigError: ``quantities`` is empty, is a string, or holds an unknown name.
        """
        if isinstance(quantities, str) or not quantities:
            raise ConfigError(
                f"a front is of several quantities, and not of {quantities!r}",
                hint=f"name some of {', '.join(self.quantities)} in a tuple",
            )
        values = np.stack([self.quantity(name) for name in quantities], axis=1)
        known = np.flatnonzero(np.isfinite(values).all(axis=1) & np.isfinite(self.seconds))
        return [self[int(known[row])] for row in non_dominated(values[known])]

    def to_pandas(self) -> Any:
        """The measurements as a ``pandas.DataFrame`` with a column ``knob.<name>`` for each knob.

        Raises:
            ChameleonError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - pandas is optional
        except ImportError as error:
            raise ChameleonError(
                "measurements as a data frame need pandas, which is not installed",
                hint="pip install pandas, or use the arrays of this object as they are",
            ) from error
        knobs = pd.DataFrame(list(self.configurations)).add_prefix("knob.")
        columns: dict[str, Any] = {name: self.quantity(name) for name in self.quantities}
        columns["failure"] = [None if kind is None else kind.value for kind in self.failures]
        columns["origin"] = list(self.origins)
        columns["measured_at"] = pd.to_datetime(self.measured_at, unit="s", utc=True)
        return pd.concat([knobs, pd.DataFrame(columns)], axis=1)


_QUANTITIES = ("seconds", *Measurement.NUMBERS)

RESERVED = (*_QUANTITIES, "failure", "origin", "measured_at")
"""Names of the columns that every measurement has; a further quantity must not have such a name."""


def non_dominated(values: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """The Pareto front: the points that no other point dominates, if smaller values are better.

    A point dominates another one if it is at most as large in every quantity, and smaller in at
    least one. Equal points do not dominate each other, so all of them stay.

    Args:
        values: one row per point and one column per quantity, shape (n, quantities); all finite.

    Returns:
        Row numbers of ``values``, sorted by the first quantity, then by the next ones.
    """
    # In this order, a point can only be dominated by an earlier point.
    order = np.lexsort(values.T[::-1])
    rows: list[int] = []
    for row in order:
        front = values[rows]
        dominated = (front <= values[row]).all(axis=1) & (front < values[row]).any(axis=1)
        if not dominated.any():
            rows.append(int(row))
    return np.array(rows, np.intp)
