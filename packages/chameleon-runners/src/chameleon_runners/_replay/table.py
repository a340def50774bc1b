"""A recorded table: knobs, the configurations that were measured, and their measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Choice,
    Configs,
    DesignSpace,
    FailureKind,
    Knob,
    Measurement,
)
from numpy.typing import NDArray

Config = tuple[int, ...]


@attrs.frozen(kw_only=True)
class RecordedTuples(Knob):
    """A knob whose values are tuples of integers of one length, such as recorded tiles."""

    options: tuple[tuple[int, ...], ...]

    def decode(self, index: int) -> tuple[int, ...]:
        return self.options[index]

    @property
    def values(self) -> NDArray[Any]:
        return np.asarray(self.options)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part}" for part in range(len(self.options[0])))

    @property
    def feature_table(self) -> NDArray[np.float32]:
        return self.magnitude(self.values)


@attrs.frozen(kw_only=True, eq=False)
class Table:
    """All recorded measurements of one tuning problem.

    Attributes:
        digest: a digest of the content, which does not depend on the file's path.
        knobs: one knob per parameter with more than one value; at least one knob.
        configs: the distinct recorded configurations as knob indices, shape (m, knobs).
        measurements: one per row of ``configs``, with all repeats. ``run_seconds`` includes
            verifying and the tuner's overhead.
        recorded: the objective of every configuration in seconds as the table has it, infinity for
            failures, shape (m,).
        flop: the number of floating-point operations of one evaluation; 0 if unknown.
    """

    name: str
    digest: str
    knobs: tuple[Knob, ...]
    configs: Configs
    measurements: Sequence[Measurement]
    recorded: NDArray[np.float64]
    flop: float = 0.0

    @cached_property
    def _rows(self) -> Mapping[Config, int]:
        return {tuple(config): row for row, config in enumerate(self.configs.tolist())}

    def measurement(self, config: Config, *, repeats: bool = False) -> Measurement:
        """The recorded measurement of a configuration, or an invalid one if there is none.

        Args:
            repeats: whether its times are the repeats, instead of the recorded objective alone.
        """
        row = self._rows.get(config)
        if row is not None:
            measured, recorded = self.measurements[row], float(self.recorded[row])
            same = repeats or measured.cost == recorded
            return measured if same else attrs.evolve(measured, seconds=(recorded,))
        message = f"the table {self.name!r} has no row for this configuration"
        return Measurement(config=config, failure=FailureKind.INVALID, message=message)

    @cached_property
    def medians(self) -> NDArray[np.float64]:
        """The median seconds of every configuration, infinity for failures, shape (m,)."""
        return np.array([measurement.cost for measurement in self.measurements])

    def space(self) -> DesignSpace:
        """The design space of the table, in which only recorded configurations are legal."""
        return DesignSpace(self.knobs, only=self.configs)


def make_table(
    name: str,
    digest: str,
    columns: Mapping[str, Sequence[Any]],
    measurements: Sequence[Measurement],
    *,
    recorded: Sequence[float] | None = None,
    ranks: Mapping[str, Sequence[int]] | None = None,
    flop: float = 0.0,
) -> Table:
    """A table from parameter values and measurements.

    Args:
        recorded: the objective of each measurement in seconds; its median by default.
    """
    ranks = ranks or {}
    chosen = {key: _index_values(values, ranks.get(key)) for key, values in columns.items()}
    varying = {key: pair for key, pair in chosen.items() if len(pair[0]) > 1}
    # A design space has at least one knob.
    knobs = varying or dict(list(chosen.items())[:1])
    configs = np.array([indices for _, indices in knobs.values()], np.int32).T
    _, first = np.unique(configs, axis=0, return_index=True)
    rows = np.sort(first).tolist()
    return Table(
        name=name,
        digest=digest,
        knobs=tuple(_knob(key, options) for key, (options, _) in knobs.items()),
        configs=configs[rows],
        measurements=[
            attrs.evolve(measurements[row], config=tuple(configs[row].tolist())) for row in rows
        ],
        recorded=np.array(recorded or [measured.cost for measured in measurements])[rows],
        flop=flop,
    )


def _index_values(
    values: Sequence[Any], ranks: Sequence[int] | None
) -> tuple[tuple[Any, ...], list[int]]:
    """The distinct values in order, and the index of each row's value."""
    if len({type(value) in (str, tuple) and type(value) for value in values}) > 1:
        values = [str(value) for value in values]
    if ranks is None:
        options = tuple(sorted(set(values)))
    else:
        rank_of = dict(zip(values, ranks, strict=True))
        options = tuple(sorted(rank_of, key=lambda value: rank_of[value]))
    index_of = {value: index for index, value in enumerate(options)}
    return options, [index_of[value] for value in values]


def _knob(name: str, options: tuple[Any, ...]) -> Knob:
    if isinstance(options[0], tuple):
        return RecordedTuples(name=name, options=options)
    return Choice(name=name, options=options)
