"""Measurements in the formats of Kernel Tuner, its caches and T4 files; both hold milliseconds.

A cache is what Kernel Tuner keeps while it tunes (version 1.1.0 of its schema), a T4 file is the
output format for auto-tuners that it shares with others (T4 results, version 1.0.0).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chameleon_core.measurement import FailureKind, Measurement

from chameleon_records.errors import RecordsError
from chameleon_records.tables.rows import Row

_MILLISECONDS = 1e3

_FAILED = {
    FailureKind.BUILD_ERROR: ("CompilationFailedConfig", "compile"),
    FailureKind.BUILD_TIMEOUT: ("CompilationFailedConfig", "compile"),
    FailureKind.INVALID: ("InvalidConfig", "constraints"),
}
_RUNTIME = ("RuntimeFailedConfig", "runtime")
_T4_FAILED = {
    FailureKind.RUN_TIMEOUT: "timeout",
    FailureKind.WRONG_OUTPUT: "correctness",
}
"""What the formats call failures; anything else went wrong while the kernel ran."""


def as_cache(rows: Sequence[Row]) -> bytes:
    """The measurements of one task as a cache of Kernel Tuner's.

    Failures keep the kind that the format has for them; ``error_type`` beside it is ours.

    Raises:
        RecordsError: rows are of configurations with different knobs.
    """
    names = _names(rows)
    cache = {}
    for row in rows:
        values = _values(row)
        measured = row.measurement
        kept = {
            **values,
            "time": _mean(measured) if measured.ok else _cache_failure(measured.failure),
            "times": [one * _MILLISECONDS for one in measured.seconds],
            "compile_time": measured.build_seconds * _MILLISECONDS,
            "benchmark_time": measured.run_seconds * _MILLISECONDS,
            "verification_time": 0,
            "strategy_time": 0,
            "framework_time": 0,
            "timestamp": _date(row),
        }
        if measured.failure is not None:
            kept.update(error_type=str(measured.failure), error=measured.message)
        cache[",".join(str(values[name]) for name in names)] = kept
    first = rows[0]
    document = {
        "schema_version": "1.1.0",
        "device_name": first.target,
        "kernel_name": first.task,
        "problem_size": json.dumps(dict(first.arguments), sort_keys=True),
        "tune_params_keys": names,
        "tune_params": {name: _distinct([_values(row)[name] for row in rows]) for name in names},
        "objective": "time",
        "cache": cache,
    }
    return _text(document)


def as_t4(rows: Sequence[Row]) -> bytes:
    """The measurements of one task as a T4 file.

    Raises:
        RecordsError: rows are of configurations with different knobs.
    """
    _names(rows)
    results = []
    for row in rows:
        measured = row.measurement
        times = {
            "compilation": measured.build_seconds * _MILLISECONDS,
            "benchmark": measured.run_seconds * _MILLISECONDS,
            "validation": 0,
            "framework": 0,
            "search_algorithm": 0,
            "runtimes": [one * _MILLISECONDS for one in measured.seconds],
        }
        found = [{"name": "time", "value": _mean(measured), "unit": "ms"}] if measured.ok else []
        results.append(
            {
                "timestamp": _date(row),
                "configuration": _values(row),
                "times": times,
                "invalidity": "correct" if measured.ok else _t4_failure(measured.failure),
                "correctness": int(measured.ok),
                "measurements": found,
                "objectives": ["time"],
            }
        )
    document = {
        "schema_version": "1.0.0",
        "results": results,
    }
    return _text(document)


def _names(rows: Sequence[Row]) -> list[str]:
    """The knobs' names.

    Raises:
        RecordsError: they are not the same in all rows.
    """
    names = list(rows[0].knobs)
    if any(list(row.knobs) != names for row in rows):
        raise RecordsError(
            f"the measurements of {rows[0].task} are of different knobs",
            hint="Export them with `--to csv` or `--to parquet`, which leave open what is missing.",
        )
    return names


def _values(row: Row) -> Mapping[str, Any]:
    """Knobs as the formats have them: numbers and texts; tuples are texts such as ``4x2``."""
    return {name: _value(value) for name, value in row.knobs.items()}


def _value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def _distinct(values: Sequence[Any]) -> list[Any]:
    found = dict.fromkeys(values)
    return sorted(found) if len({type(one) for one in found}) == 1 else list(found)


def _mean(measured: Measurement) -> float:
    return statistics.fmean(measured.seconds) * _MILLISECONDS


def _cache_failure(kind: FailureKind | None) -> str:
    return (_FAILED.get(kind, _RUNTIME) if kind is not None else _RUNTIME)[0]


def _t4_failure(kind: FailureKind | None) -> str:
    if kind is None:
        return _RUNTIME[1]
    return _T4_FAILED.get(kind) or _FAILED.get(kind, _RUNTIME)[1]


def _date(row: Row) -> str:
    return datetime.fromtimestamp(row.measured_at, UTC).isoformat()


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


__all__ = ["as_cache", "as_t4"]
