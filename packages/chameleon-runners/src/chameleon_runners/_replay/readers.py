"""Reads recorded tables from files and run folders, and checks them."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import statistics
import zlib
from collections.abc import Mapping, Sequence, Sized
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import ConfigError, FailureKind, Measurement, Task

from chameleon_runners._replay.table import Table, make_table

_MILLISECOND = 1e-3

_FAILED_MILLISECONDS = 1e20
"""Old Kernel Tuner caches record failures as times of at least this many milliseconds."""

_FAILURES: Mapping[str, FailureKind] = {
    "compil": FailureKind.BUILD_ERROR,
    "runtime": FailureKind.RUN_ERROR,
    "timeout": FailureKind.RUN_TIMEOUT,
    "correct": FailureKind.WRONG_OUTPUT,
    "valid": FailureKind.INVALID,
    "constraint": FailureKind.INVALID,
}
"""Kinds of failure by a part of the recorded name, such as ``CompilationFailedConfig``."""

_RUN_KEYS = ("benchmark_time", "verification_time", "framework_time")
_T4_RUN_KEYS = ("benchmark", "validation", "framework")

Measured = tuple[Measurement, float]
"""A measurement with all its repeats, and its recorded objective in seconds (infinity: failed)."""


def table_of_cache(content: Mapping[str, Any], name: str, digest: str) -> Table:
    """Read a table from a cache file of Kernel Tuner."""
    parameters = [str(key) for key in content["tune_params_keys"]]
    rows = content["cache"]
    _require_rows(name, rows)
    for key, row in rows.items():
        _require_all(name, key, [field for field in (*parameters, "time") if field not in row])
    columns = {key: [_value(row[key]) for row in rows.values()] for key in parameters}
    measured = [_measured_in_cache(row) for row in rows.values()]
    measurements = [measurement for measurement, _ in measured]
    # A user metric that most tables of GEMM and convolution have.
    flops = (
        float(row["GFLOP/s"]) * 1e9 * float(row["time"]) * _MILLISECOND
        for row, measurement in zip(rows.values(), measurements, strict=True)
        if measurement.ok and "GFLOP/s" in row
    )
    flop = next(filter(None, flops), 0.0)
    recorded = [objective for _, objective in measured]
    return make_table(name, digest, columns, measurements, recorded=recorded, flop=flop)


def table_of_t4(content: Mapping[str, Any], name: str, digest: str) -> Table:
    """Read a table from a T4 file (auto-tuning output, schema 1.0.0, as Kernel Tuner writes it)."""
    results: Sequence[Mapping[str, Any]] = content["results"]
    _require_rows(name, results)
    parameters = list(results[0].get("configuration", {}))
    for number, row in enumerate(results):
        missing = [field for field in ("configuration", "times", "invalidity") if field not in row]
        configuration = row.get("configuration", {})
        missing += [parameter for parameter in parameters if parameter not in configuration]
        _require_all(name, str(number), missing or ([] if parameters else ["configuration"]))
    columns = {key: [_value(row["configuration"][key]) for row in results] for key in parameters}
    measured = [_measured_in_t4(row) for row in results]
    recorded = [objective for _, objective in measured]
    return make_table(name, digest, columns, [m for m, _ in measured], recorded=recorded)


def _measured_in_cache(row: Mapping[str, Any]) -> Measured:
    return _measurement(
        row["time"],
        row.get("times") or (),
        build=_seconds(row.get("compile_time")),
        run=sum(_seconds(row.get(key)) for key in _RUN_KEYS),
    )


def _measured_in_t4(row: Mapping[str, Any]) -> Measured:
    times = row["times"]
    runtimes = times.get("runtimes") or ()
    invalidity = str(row["invalidity"])
    measured = {entry.get("name"): entry.get("value") for entry in row.get("measurements", ())}
    return _measurement(
        measured.get("time", math.nan) if invalidity == "correct" else invalidity,
        runtimes,
        build=_seconds(times.get("compilation", times.get("compilation_time"))),
        run=sum(_seconds(times.get(key, times.get(f"{key}_time"))) for key in _T4_RUN_KEYS)
        # The benchmark hub's files have the times of the repeats instead of the benchmark's.
        + (0.0 if {"benchmark", "benchmark_time"} & times.keys() else sum(map(_seconds, runtimes))),
    )


def _measurement(time: Any, times: Sequence[Any], *, build: float, run: float) -> Measured:
    """The measurement and the objective of one row; its build and its benchmark are in seconds."""
    measured = partial(Measurement, config=(), build_seconds=build, run_seconds=run)
    if isinstance(time, str):
        kinds = (kind for part, kind in _FAILURES.items() if part in time.lower())
        kind = next(kinds, FailureKind.RUN_ERROR)
        return measured(failure=kind, message=f"recorded as {time}"), math.inf
    repeats = tuple(float(each) * _MILLISECOND for each in (times or (time,)) if _is_time(each))
    if not repeats or (time is not None and float(time) >= _FAILED_MILLISECONDS):
        message = f"recorded without a usable time ({time})"
        return measured(failure=FailureKind.RUN_ERROR, message=message), math.inf
    # Kernel Tuner's objective is the mean if its observers do not say otherwise.
    objective = float(time) * _MILLISECOND if _is_time(time) else statistics.fmean(repeats)
    return measured(seconds=repeats), objective


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and 0.0 < value < _FAILED_MILLISECONDS


def _seconds(milliseconds: Any) -> float:
    """Convert milliseconds to seconds; 0 if the value is missing or impossible."""
    usable = isinstance(milliseconds, int | float) and 0.0 <= milliseconds < math.inf
    return float(milliseconds) * _MILLISECOND if usable else 0.0


def _value(value: Any) -> Any:
    """Convert a parameter's value to a value that can be compared and hashed."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def _require_rows(name: str, rows: Sized) -> None:
    if not rows:
        raise ConfigError(f"the table {name!r} has no row", hint="record it anew")


def _require_all(name: str, row: str, missing: Sequence[str]) -> None:
    if missing:
        raise ConfigError(
            f"row {row!r} of the table {name!r} lacks {', '.join(map(repr, missing))}",
            hint="the file is incomplete; fetch or record it anew",
        )


def tables_of_run(folder: Path) -> list[Table]:
    """The tables of a run folder, one per measured task, in the order of the tasks."""
    with RecordStore.of_run(folder) as store:
        tables = [_table(store, stored) for stored in store.tasks()]
    return [table for table in tables if table is not None]


def _table(store: RecordStore, stored: RecordStore.TaskRow) -> Table | None:
    measurements = store.measurements(stored.id)
    if not measurements:
        return None
    decoded = store.decoded(stored.id)
    names = list(decoded[0])
    columns = {name: [_knob_value(knobs[name]) for knobs in decoded] for name in names}
    ranks = {
        name: [measurement.config[column] for measurement in measurements]
        for column, name in enumerate(names)
    }
    # A replayed measurement was not compared with a reference.
    recorded = [attrs.evolve(m, max_relative_error=None) for m in measurements]
    described = [stored.task.key, stored.fingerprint, [(m.config, m.seconds) for m in measurements]]
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:24]
    return make_table(
        stored.task.name, digest, columns, recorded, ranks=ranks, flop=stored.task.flop
    )


def _knob_value(value: Any) -> Any:
    """Convert a knob's value from JSON to a value that can be compared and hashed."""
    if isinstance(value, list) and all(isinstance(part, int) for part in value):
        return tuple(value)
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


OPERATOR = "table"
"""The ``Task.operator`` of every task of a recorded table."""

_GZIP_MAGIC = b"\x1f\x8b"


def tables_at(path: str) -> tuple[Table, ...]:
    """The tables of a file or of a run folder."""
    file = Path(path)
    if not file.exists():
        raise ConfigError(
            f"there is no table at {path}",
            hint="name a Kernel Tuner cache or T4 file (.json or .json.gz), or a run folder",
        )
    if file.is_dir():
        return tuple(tables_of_run(file))
    changed = file.stat()
    return _tables_in(path, changed.st_mtime_ns, changed.st_size)


def table_of_task(task: Task) -> Table:
    """The recorded table of a task of the frontend ``table``."""
    if task.operator != OPERATOR:
        raise ConfigError(
            f"task {task.name!r} is a {task.operator!r}, not a recorded table",
            hint="the space 'table' and the runner 'replay' go with `model: {table: FILE}`",
        )
    digest = task.arguments["digest"]
    for table in tables_at(task.location):
        if table.digest == digest:
            return table
    raise ConfigError(
        f"{task.location} no longer holds the table {task.name!r} that the task was made from",
        hint="restore it, or tune into another folder (`output=`)",
    )


# Cached, because a suite reads each table many times, which takes a second each.
@lru_cache(maxsize=16)
def _tables_in(path: str, _changed: int, _size: int) -> tuple[Table, ...]:
    file = Path(path)
    content = _bytes(file)
    name = file.name.removesuffix(".gz").removesuffix(".json")
    digest = hashlib.sha256(content).hexdigest()[:24]
    value = _parsed(content, path)
    if isinstance(value, dict) and {"tune_params_keys", "cache"} <= value.keys():
        return (table_of_cache(value, name, digest),)
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        return (table_of_t4(value, name, digest),)
    raise ConfigError(
        f"{path} is neither a Kernel Tuner cache nor a T4 file",
        hint="a cache has the keys 'tune_params_keys' and 'cache', a T4 file has 'results'",
    )


def _bytes(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(str(file), error) from error


def _parsed(content: bytes, path: str) -> Any:
    try:
        text = content.decode()
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            # Kernel Tuner closes the braces of a cache only when the tuning ends.
            return json.loads(text.rstrip().rstrip(",") + "}}")
    except ValueError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"the table {path} cannot be read: {error}", hint="fetch or record the file anew"
    )
