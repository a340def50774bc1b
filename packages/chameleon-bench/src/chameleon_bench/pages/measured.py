"""The measurements of one operator as columns: plots and tables are made of these arrays."""

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
"""The origin of a measurement whose version did not record any."""


@attrs.frozen(kw_only=True, eq=False)
class Categories:
    """A column of few distinct words.

    Attributes:
        labels: the distinct words, shape (m,).
        codes: the place of each row's word among them, -1 for none, int64 of shape (n,).
    """

    labels: Sequence[str]
    codes: NDArray[np.int64]

    @property
    def words(self) -> list[str]:
        """The word of each row, empty for none."""
        labels = [*self.labels, ""]
        return [labels[code] for code in self.codes.tolist()]


@attrs.frozen(kw_only=True, eq=False)
class Measured:
    """All measurements of one operator in order of arrival; n of them.

    Attributes:
        configs: knob indices, int64 of shape (n, knobs).
        seconds: medians of the repeats, infinity for failures, float64 of shape (n,).
        spread: the slowest repeat minus the fastest one, over the median; NaN for failures,
            float64 of shape (n,).
        at: seconds of wall-clock between the begin of the run and the measurement, without the
            time between the run's processes, float64 of shape (n,).
        origins: what put it into its batch.
        scores: the cost model's score when it was proposed, on its own scale, higher is better; NaN
            if no trained one was asked. Float64 of shape (n,).
        failures: the kind of failure; none of those that have a time.
        messages: the failure in words, empty if there is none, n of them.
        knobs: the decoded values by the knob's name; none if the knob does not apply.
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
        """Which measurements have a time, shape (n,)."""
        return np.isfinite(self.seconds)

    @property
    def best_so_far(self) -> NDArray[np.float64]:
        """The least time until each measurement in seconds, shape (n,)."""
        best: NDArray[np.float64] = np.minimum.accumulate(self.seconds)
        return best

    def fastest(self, count: int) -> NDArray[np.int64]:
        """The rows of the fastest measurements, the fastest first, at most so many."""
        order = np.argsort(self.seconds, kind="stable")[:count]
        rows: NDArray[np.int64] = order[self.ok[order]]
        return rows

    def values_of(self, row: int) -> dict[str, str]:
        """The decoded values of one measurement by knob, of the knobs that apply."""
        return {
            name: knob.labels[knob.codes[row]]
            for name, knob in self.knobs.items()
            if knob.codes[row] >= 0
        }


def measured_of(store: RecordStore, stored: StoredTask, starts: Sequence[float]) -> Measured:
    """Read the measurements of a task.

    Args:
        store: the run's.
        stored: one of its tasks.
        starts: when each of the run's processes began, rising, in seconds since 1970.
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
    """A knob's value as a reader writes it: ``4 x 2 x 8`` for the factors of a loop."""
    if isinstance(value, list | tuple):
        return " x ".join(map(shown, value))
    return value if isinstance(value, str) else json.dumps(value)


def _categories(words: Sequence[str | None], order: Iterable[str] = ()) -> Categories:
    """A column of words; labels in a given order, and then as they appear."""
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
