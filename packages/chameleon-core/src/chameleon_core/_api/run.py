"""A run folder as an object: its operators, their best configurations and all measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from chameleon_core._api.measurements import Measurements, Rows, Trial
from chameleon_core._errors import ConfigError
from chameleon_core._loop.end.result import OperatorResult, RunResult
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.nodes import expanded
from chameleon_core._pipeline.schema import Requirement
from chameleon_core._run_view import RunView
from chameleon_core._store.records import RecordStore
from chameleon_core._words import in_seconds


@attrs.frozen(kw_only=True)
class Run:
    """A run, as it was when ``load_run`` read its folder.

    Attributes:
        result: the content of ``chameleon run --json`` as typed objects. If the run has not ended,
            this is the current state.
        finished: whether the run ended.
        operators: the run's operators by name, in the order in which the run defines its tasks.
    """

    @attrs.frozen(kw_only=True)
    class Operator:
        """One operator of a run, with its result and its measurements.

        Attributes:
            result: the operator's entry in the run's result. If the run has not ended, this is the
                current state.
            measurements: all measurements of the operator.
        """

        result: OperatorResult
        measurements: Measurements

        @property
        def name(self) -> str:
            """The operator's name."""
            return self.result.name

        @property
        def best(self) -> Mapping[str, Any] | None:
            """Knob values of the best configuration, by knob name.

            The value is None if no configuration succeeded.
            """
            return self.result.best

        @property
        def seconds(self) -> float | None:
            """The best configuration's time in seconds, or None if no configuration succeeded.

            The time is from the final comparison, if the run made one, else from the search.
            """
            tuned = self.result.tuned_seconds
            return self.result.search_seconds if tuned is None else tuned

        def front(self, quantities: Sequence[str]) -> list[Trial]:
            """The Pareto front of the operator's measurements (``Measurements.front``)."""
            return self.measurements.front(quantities)

    result: RunResult
    finished: bool
    operators: Mapping[str, Run.Operator]

    def __str__(self) -> str:
        """The summary that ``chameleon run`` prints: speed, comparison, and next step."""
        return "\n".join(self.result.summary_lines) or f"{self.folder} has no valid result."

    def _repr_html_(self) -> str:
        """The summary and a table of operators as HTML, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{len(operator.measurements)}</td>"
            f"<td>{in_seconds(operator.seconds)}</td><td>{_curve(operator.measurements)}</td></tr>"
            for name, operator in self.operators.items()
        )
        head = "<tr><th>operator</th><th>measured</th><th>fastest</th><th>search</th></tr>"
        return f"<pre>{escape(str(self))}</pre><table>{head}{rows}</table>"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.result.folder

    @property
    def network(self) -> NetworkResult:
        """The network's result; empty if the model is no network, or if the run has not ended."""
        return self.result.network

    @property
    def only(self) -> Run.Operator:
        """The only operator of the run, for runs that tune a single operator.

        Raises:
            ConfigError: the run has no operator, or several.
        """
        if len(self.operators) != 1:
            raise ConfigError(
                f"the run has {len(self.operators)} operators, not one",
                hint=f"choose one: operators[name] of {', '.join(self.operators) or 'none'}",
            )
        (operator,) = self.operators.values()
        return operator

    @property
    def best(self) -> Mapping[str, Any] | None:
        """Knob values of the best configuration, by knob name, for a run with one operator.

        The value is None if no configuration succeeded.
        """
        return self.only.best

    @property
    def measurements(self) -> Measurements:
        """The measurements of a run with one operator (``Operator.measurements``)."""
        return self.only.measurements

    def front(self, quantities: Sequence[str]) -> list[Trial]:
        """The Pareto front of a run with one operator (``Measurements.front``)."""
        return self.only.front(quantities)


_CURVE = (160, 32)
"""Width and height of a search's curve in pixels."""


def _curve(measurements: Measurements) -> str:
    """An SVG image of the lowest time after each measurement, on a logarithmic axis."""
    lowest = np.log(np.minimum.accumulate(measurements.seconds))
    known = np.flatnonzero(np.isfinite(lowest))
    if not len(known):
        return ""
    width, height = _CURVE
    span = max(float(np.ptp(lowest[known])), 1e-9)
    across = width * known / max(len(lowest) - 1, 1)
    down = height * (lowest[known].max() - lowest[known]) / span
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="lowest time">'
        f'<polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
    )


def load_run(folder: str | Path) -> Run:
    """Read a run folder. The run may still be running.

    Args:
        folder: the folder that ``chameleon run``, ``tune`` or a ``Tuner`` with ``store`` wrote.

    Raises:
        RunFolderError: the folder holds no run, or cannot be read.

    Example:
        >>> import chameleon_core as cc
        >>> run = cc.load_run("runs/dense")
        >>> for name, operator in run.operators.items():
        ...     print(name, operator.seconds < 1, operator.measurements.configs.shape[0])
        dense True 4
    """
    path = expanded(folder).absolute()
    with RunView(path) as run:
        result = run.result
        finished = result is not None
        if result is None:
            operators = tuple(operator.result for operator in run.operators)
            result = RunResult(
                folder=path, seconds=run.seconds, operators=operators, versions=run.versions
            )
        asked = run.document.get("require")
        rows = {operator.result.name: operator.stored.id for operator in run.operators}
    return Run(
        result=result if asked is None else attrs.evolve(result, require=Requirement(**asked)),
        finished=finished,
        operators={
            row.name: Run.Operator(
                result=row, measurements=Measurements(partial(_rows, path, rows[row.name]))
            )
            for row in result.operators
        },
    )


def _rows(folder: Path, task_id: int) -> Rows:
    with RecordStore.of_run(folder) as store:
        return Rows.of(store, task_id)
