"""The vocabulary of a predictor: names of tokens and of numbers, with the numbers' scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Self

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs
from numpy.typing import NDArray

from chameleon_one_shot._tokens.configuration import Numbers, TaskTokens
from chameleon_one_shot._tokens.numbers import is_symbol

Ids = NDArray[np.int64]

UNKNOWN = 0
"""The id of all names that are not in the training data."""

_CLIP = 4.0
"""The largest absolute value of a standardised number, beyond which its effect was not learnt."""


@attrs.frozen(kw_only=True, eq=False)
class Vocabulary:
    """Gives ids to the names of a predictor's tokens and numbers, and scales the numbers.

    Attributes:
        columns: the names of numbers; the first one has id 1.
        means: the mean of each number over the training data, 0 for strings, shape (len(columns),).
        deviations: the standard deviation of each number, 1 for strings and for constant numbers.
        tokens: the names of tokens; the first one has id 1.
    """

    columns: tuple[str, ...]
    means: Numbers
    deviations: Numbers
    tokens: tuple[str, ...]

    @classmethod
    def fit(cls, examples: Iterable[tuple[TaskTokens, Configs]]) -> Self:
        """The vocabulary of training data: tokens of tasks, with configurations (n, knobs)."""
        statistics: dict[str, _Statistics] = {}
        tokens: dict[str, None] = {}
        for task, configs in examples:
            tokens |= dict.fromkeys(part.name for part in task.parts)
            for name, values in task.values(configs):
                statistics.setdefault(name, _Statistics()).add(values)
        return cls(
            columns=tuple(statistics),
            means=np.array(
                [0.0 if is_symbol(name) else row.mean for name, row in statistics.items()],
                np.float32,
            ),
            deviations=np.array(
                [1.0 if is_symbol(name) else row.deviation for name, row in statistics.items()],
                np.float32,
            ),
            tokens=tuple(tokens),
        )

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.columns, 1)}

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.tokens, 1)}

    def token_ids(self, names: Iterable[str]) -> Ids:
        """The ids of tokens' names, shape (names,); ``UNKNOWN`` for unknown names."""
        return np.array([self._tokens.get(name, UNKNOWN) for name in names], np.int64)

    def column_ids(self, names: Iterable[str]) -> Ids:
        """The ids of numbers' names, shape (names,); ``UNKNOWN`` for unknown names."""
        return np.array([self._columns.get(name, UNKNOWN) for name in names], np.int64)

    def standardise(self, names: Sequence[str], values: Numbers) -> Numbers:
        """Standardise numbers of shape (..., len(names)); NaN if missing."""
        ids = self.column_ids(names)
        known = ids != UNKNOWN
        mean = np.where(known, np.append(self.means, 0.0)[ids - 1], 0.0)
        deviation = np.where(known, np.append(self.deviations, 1.0)[ids - 1], 1.0)
        scaled = np.clip((values - mean) / deviation, -_CLIP, _CLIP)
        scaled = np.where(known & np.isfinite(scaled), scaled, 0.0)
        return scaled.astype(np.float32)

    def unknown(self, task: TaskTokens) -> tuple[str, ...]:
        """The names of a task's tokens and numbers that the predictor was not trained with."""
        parts = task.parts[len(task.fixed) :]
        columns = {name for part in parts for name in part.columns} - self._columns.keys()
        return tuple(sorted(({part.name for part in parts} - self._tokens.keys()) | columns))

    def to_json(self) -> dict[str, Any]:
        """The attributes as JSON values; ``of_json`` is the inverse."""
        return {
            "columns": list(self.columns),
            "means": self.means.tolist(),
            "deviations": self.deviations.tolist(),
            "tokens": list(self.tokens),
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            columns=tuple(value["columns"]),
            means=np.array(value["means"], np.float32),
            deviations=np.array(value["deviations"], np.float32),
            tokens=tuple(value["tokens"]),
        )


@attrs.define
class _Statistics:
    """The count, the sum and the sum of squares of a number."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: Numbers) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        self.count += len(finite)
        self.total += float(finite.sum())
        self.squares += float((finite * finite).sum())

    @property
    def mean(self) -> float:
        return self.total / max(self.count, 1)

    @property
    def deviation(self) -> float:
        variance = self.squares / max(self.count, 1) - self.mean**2
        # A variance of a constant is only a rounding error.
        negligible = variance <= 1e-9 * max(1.0, self.mean**2)
        return 1.0 if negligible else float(np.sqrt(variance))
