"""The measurements of one operator as columns, from which plots and tables are made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.loop.round.batch import Origin
from chameleon_core.store import RecordStore, StoredTask
from numpy.typing import NDArray

from chameleon_bench.pages.run_events import since

UNKNOWN = "not recorded"
"""The origin of measurements whose version of Chameleon recorded none."""


@attrs.frozen(kw_only=True, eq=False)
class Categories:
    """A column of words of which few are different.

    Attributes:
        labels: The distinct words, shape (m,).
        codes: The index of each row's word in ``labels``, -1 for no word, int64 of shape (n,).
    """

    labels: Sequence[str]
    codes: NDArray[np.int64]

    @property
    def words(self) -> list[str]:
        """The word of each row; an empty string for no word."""
        labels = [*self.labels, ""]
        return [labels[code] for code in self.codes.tolist()]


@attrs.frozen(kw_only=True, eq=False)
class Measured:
    """The n measurements of one operator, in order of arrival.

    Attributes:
        configs: The knob indices, int64 of shape (n, knobs).
        seconds: The median of each measurement's repeats in seconds, infinity for failures, float64
            of shape (n,).
        spread: The slowest minus the fastest repeat, divided by the median; NaN for failures,
            float64 of shape (n,).
        at: The wall-clock seconds from the start of the run to each measurement, without pauses
            between the run's processes, float64 of shape (n,).
        origins: The stage that proposed each configuration.
        scores: The cost model's score of each configuration when it was proposed, higher is better,
            float64 of shape (n,). The scale is the model's own. NaN if no trained model scored it.
        failures: The kind of failure of each measurement; none for measurements with a time.
        messages: The message of each failure, empty for measurements with a time, n of them.
        knobs: The value of each knob in each configuration, by knob name. A configuration in which
            a knob has no effect has no value for it.
    """

    configs: NDArray[np.int64]
    seconds: NDArray[np.float64]
    spread: NDArray[np.float64]
    at: NDArray[np.float64]
    origins: Categories
    scores: NDArray[np.float64]
    failures: Categories
    messages: Sequence[str]
    knobs: dict[str, Categories]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Whether each measurement has a time, shape (n,)."""
        return np.isfinite(self.seconds)

    @property
    def best_so_far(self) -> NDArray[np.float64]:
        """The lowest time up to each measurement in seconds, shape (n,)."""
        best: NDArray[np.float64] = np.minimum.accumulate(self.seconds)
        return best

    def fastest(self, count: int) -> NDArray[np.int64]:
        """The rows of the fastest measurements, fastest first, at most ``count``."""
        order = np.argsort(self.seconds, kind="stable")[:count]
        rows: NDArray[np.int64] = order[self.ok[order]]
        return rows

    def values_of(self, row: int) -> dict[str, str]:
        """The knob values of one measurement, by knob name; knobs without effect are left out.

        Args:
            row: The number of the measurement, from 0.
        """
        return {
            name: knob.labels[knob.codes[row]]
            for name, knob in self.knobs.items()
            if knob.codes[row] >= 0
        }


def measured_of(store: RecordStore, stored: StoredTask, starts: Sequence[float]) -> Measured:
    """Read the measurements of a task.

    Args:
        store: The run's store.
        stored: The task in the store.
        starts: The start time of each of the run's processes, rising, in seconds since 1970. With
            these times, pauses between the processes are left out of the times of measurements.
    """
    rows = store.measurements(stored.id)
    seconds = np.array([row.cost for row in rows], np.float64)
    extent = [max(row.seconds) - min(row.seconds) if row.ok else np.nan for row in rows]
    order = [*(origin.value for origin in Origin), UNKNOWN]
    knobs = len(rows[0].config) if rows else 0
    return Measured(
        configs=np.array([row.config for row in rows], np.int64).reshape(len(rows), knobs),
        seconds=seconds,
        spread=np.array(extent, np.float64) / seconds,
        at=since(np.array(store.measured_at(stored.id), np.float64), starts),
        origins=_categories([origin or UNKNOWN for origin in store.origins(stored.id)], order),
        scores=np.array(store.scores(stored.id), np.float64),
        failures=_categories([row.failure.value if row.failure else None for row in rows]),
        messages=[row.message for row in rows],
        knobs=_knobs(store.decoded(stored.id)),
    )


def shown(value: Any) -> str:
    """A knob's value as text for a page, such as ``4 x 2 x 8`` for the factors of a loop.

    Args:
        value: The value.
    """
    if isinstance(value, list | tuple):
        return " x ".join(map(shown, value))
    return value if isinstance(value, str) else json.dumps(value)


def _categories(words: Sequence[str | None], order: Iterable[str] = ()) -> Categories:
    """A column of words.

    Args:
        words: The word of each row, or None.
        order: The first labels, in order. Other labels follow in the order of their appearance.
    """
    labels = list(dict.fromkeys(word for word in words if word is not None))
    ranks = {word: rank for rank, word in enumerate(order)}
    labels.sort(key=lambda word: ranks.get(word, len(ranks)))
    places = {word: code for code, word in enumerate(labels)}
    codes = [-1 if word is None else places[word] for word in words]
    return Categories(labels=labels, codes=np.array(codes, np.int64))


def _knobs(decoded: Sequence[dict[str, Any]]) -> dict[str, Categories]:
    names = dict.fromkeys(name for choices in decoded for name in choices)
    knobs = {}
    for name in names:
        values = [choices.get(name) for choices in decoded]
        words = [None if value is None else shown(value) for value in values]
        numbers = {
            word: value
            for word, value in zip(words, values, strict=True)
            if word is not None and isinstance(value, int | float)
        }
        knobs[name] = _categories(words, sorted(numbers, key=lambda word: numbers[word]))
    return knobs
