"""Measurements in formats of Kernel Tuner: caches (schema 1.1.0) and T4 files (version 1.0.0)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chameleon_core.plugin_api import FailureKind, Measurement

from chameleon_records._format import RecordsError
from chameleon_records._tables.rows import Row

_MILLISECONDS = 1e3

_OTHER_FAILURE = ("RuntimeFailedConfig", "runtime")
_FAILURES = {
    FailureKind.BUILD_ERROR: ("CompilationFailedConfig", "compile"),
    FailureKind.BUILD_TIMEOUT: ("CompilationFailedConfig", "compile"),
    FailureKind.INVALID: ("InvalidConfig", "constraints"),
    FailureKind.RUN_TIMEOUT: ("RuntimeFailedConfig", "timeout"),
    FailureKind.WRONG_OUTPUT: ("RuntimeFailedConfig", "correctness"),
}
"""The names of failures in a cache and in a T4 file."""


def as_cache(rows: Sequence[Row]) -> bytes:
    """The measurements of one task as a cache file of Kernel Tuner."""
    names = _names(rows)
    cache = {}
    for row in rows:
        values = _values(row)
        measured = row.record.measurement
        entry = {
            **values,
            "time": _mean(measured) if measured.ok else _failure_names(measured)[0],
            "times": [time * _MILLISECONDS for time in measured.seconds],
            "compile_time": measured.build_seconds * _MILLISECONDS,
            "benchmark_time": measured.run_seconds * _MILLISECONDS,
            "verification_time": 0,
            "strategy_time": 0,
            "framework_time": 0,
            "timestamp": _date(row),
        }
        if measured.failure is not None:
            # These two keys are not in the schema.
            entry.update(error_type=str(measured.failure), error=measured.message)
        cache[",".join(str(values[name]) for name in names)] = entry
    first = rows[0]
    document = {
        "schema_version": "1.1.0",
        "device_name": first.key.target,
        "kernel_name": first.task,
        "problem_size": json.dumps(dict(first.key.arguments), sort_keys=True),
        "tune_params_keys": names,
        "tune_params": {name: _distinct([_values(row)[name] for row in rows]) for name in names},
        "objective": "time",
        "cache": cache,
    }
    return _text(document)


def as_t4(rows: Sequence[Row]) -> bytes:
    """The measurements of one task as a T4 file, which several auto-tuners share."""
    _names(rows)
    results = []
    for row in rows:
        measured = row.record.measurement
        times = {
            "compilation": measured.build_seconds * _MILLISECONDS,
            "benchmark": measured.run_seconds * _MILLISECONDS,
            "validation": 0,
            "framework": 0,
            "search_algorithm": 0,
            "runtimes": [time * _MILLISECONDS for time in measured.seconds],
        }
        means = [_mean(measured)] if measured.ok else []
        results.append(
            {
                "timestamp": _date(row),
                "configuration": _values(row),
                "times": times,
                "invalidity": "correct" if measured.ok else _failure_names(measured)[1],
                "correctness": int(measured.ok),
                "measurements": [{"name": "time", "value": mean, "unit": "ms"} for mean in means],
                "objectives": ["time"],
            }
        )
    return _text({"schema_version": "1.0.0", "results": results})


def _names(rows: Sequence[Row]) -> list[str]:
    """The names of the knobs, which must be the same in all rows."""
    names = list(rows[0].record.knobs)
    if any(list(row.record.knobs) != names for row in rows):
        raise RecordsError(
            f"the measurements of {rows[0].task} are of different knobs",
            hint="Export them with `--to csv` or `--to parquet`, which leave open what is missing.",
        )
    return names


def _values(row: Row) -> Mapping[str, Any]:
    """Knob values as the formats define them: numbers and strings, such as ``4x2`` for a tuple."""
    return {name: _value(value) for name, value in row.record.knobs.items()}


def _value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def _distinct(values: Sequence[Any]) -> list[Any]:
    distinct = dict.fromkeys(values)
    return sorted(distinct) if len(set(map(type, distinct))) == 1 else list(distinct)


def _mean(measured: Measurement) -> float:
    return statistics.fmean(measured.seconds) * _MILLISECONDS


def _failure_names(measured: Measurement) -> tuple[str, str]:
    """The names of a failure in a cache and in a T4 file."""
    kind = measured.failure
    return _OTHER_FAILURE if kind is None else _FAILURES.get(kind, _OTHER_FAILURE)


def _date(row: Row) -> str:
    return datetime.fromtimestamp(row.record.measured_at, UTC).isoformat()


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
