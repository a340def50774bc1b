"""Rows as columns: what is in every row by itself, and a column for each argument and knob."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_records.tables.rows import Row

ARGUMENT, KNOB = "argument.", "knob."
"""What names of columns of arguments and knobs begin with."""

Columns = dict[str, list[Any]]


def columns_of(rows: Sequence[Row]) -> Columns:
    """Columns of equal length, by name; None where a row has no such argument or knob.

    ``seconds`` is the median of ``repeats``, which are kernel times in seconds; both are missing
    where a measurement failed. ``measured_at`` is in seconds since 1970. Arguments and knobs are
    numbers and texts of one type in each column, and JSON where they are more than that.
    """
    found: Columns = {
        "task": [row.task for row in rows],
        "operator": [row.operator for row in rows],
        "target": [row.target for row in rows],
        "space": [row.space for row in rows],
        "fingerprint": [row.fingerprint for row in rows],
        "conditions": [None if row.conditions is None else _text(row.conditions) for row in rows],
        "configuration": [list(row.measurement.config) for row in rows],
        "seconds": [row.measurement.cost if row.measurement.ok else None for row in rows],
        "repeats": [list(row.measurement.seconds) for row in rows],
        "failure": [
            None if row.measurement.failure is None else str(row.measurement.failure)
            for row in rows
        ],
        "message": [row.measurement.message or None for row in rows],
        "max_relative_error": [row.measurement.max_relative_error for row in rows],
        "build_seconds": [row.measurement.build_seconds for row in rows],
        "run_seconds": [row.measurement.run_seconds for row in rows],
        "origin": [row.origin for row in rows],
        "measured_at": [row.measured_at for row in rows],
    }
    found.update(_flat(ARGUMENT, [row.arguments for row in rows]))
    found.update(_flat(KNOB, [row.knobs for row in rows]))
    return found


def _flat(prefix: str, values: Sequence[Mapping[str, Any]]) -> Columns:
    names = dict.fromkeys(name for one in values for name in one)
    return {f"{prefix}{name}": _alike([one.get(name) for one in values]) for name in names}


def _alike(values: list[Any]) -> list[Any]:
    """Values of one simple type as they are, others as JSON."""
    types = {type(one) for one in values if one is not None}
    if types <= {int, float} and len(types) > 1:
        return [None if one is None else float(one) for one in values]
    if len(types) <= 1 and types <= {bool, int, float, str}:
        return values
    return [None if one is None else _text(one) for one in values]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


__all__ = ["ARGUMENT", "KNOB", "Columns", "columns_of"]
