"""Writes tables of measurements as CSV, Parquet, pandas data frames, or Kernel Tuner's files."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import Measurement
from chameleon_system.api import write_atomic

from chameleon_records._format import RecordsError
from chameleon_records._tables.kernel_tuner import as_cache, as_t4
from chameleon_records._tables.rows import Row, by_task, rows_of

_LISTS = {"configuration": "int64", "repeats": "float64"}
_NUMBERS = ("seconds", *Measurement.NUMBERS, "measured_at")


def as_csv(rows: Sequence[Row]) -> bytes:
    """Rows as a CSV file in UTF-8 (RFC 4180), with lists as JSON."""
    columns = columns_of(rows)
    for name in _LISTS:
        columns[name] = [json.dumps(value) for value in columns[name]]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def as_parquet(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - pyarrow is optional
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise _missing("pyarrow", "write Parquet") from error
    columns = columns_of(rows)
    arrays = {name: pa.array(values, _arrow_type(pa, name)) for name, values in columns.items()}
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(arrays), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def dataframe(place: str | None = None) -> Any:
    """The measurements of a run folder or a record database, one row for each measurement.

    Args:
        place: a run folder, or the location of a record database. If None, the database that runs
            use by default.

    Returns:
        A ``pandas.DataFrame`` with the columns of :func:`.columns_of`; ``measured_at`` is a date in
        UTC.

    Raises:
        RecordsError: pandas is not installed, or there are no records at the place.
        RunFolderError: the run folder cannot be read.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - the library is optional
    except ImportError as error:
        raise _missing("pandas", "make a data frame") from error
    columns: Columns = columns_of(rows_of(place))
    frame = pd.DataFrame(columns)
    for name in _NUMBERS:
        frame[name] = frame[name].astype("float64")
    frame["measured_at"] = pd.to_datetime(frame["measured_at"], unit="s", utc=True)
    return frame


def _arrow_type(pa: Any, name: str) -> Any:
    """The Arrow type of a column; None if Arrow should derive it from the values."""
    if name in _LISTS:
        return pa.list_(pa.type_for_alias(_LISTS[name]))
    if name in _NUMBERS:
        return pa.float64()
    return None if name.startswith((ARGUMENT, KNOB)) else pa.string()


def _missing(library: str, purpose: str) -> RecordsError:
    """The error for an optional library that is not installed."""
    return RecordsError(
        f"{library} is needed to {purpose}, and it is not installed",
        hint=f"Install it (`pip install {library}`), or take `--to csv`.",
    )


ARGUMENT, KNOB = "argument.", "knob."
"""Prefixes of the names of columns for arguments and knobs."""

Columns = dict[str, list[Any]]


def columns_of(rows: Sequence[Row]) -> Columns:
    """The columns of a table of measurements, by name.

    ``seconds`` is the median of ``repeats`` or None after a failure, and ``measured_at`` is in
    seconds since 1970. An argument or knob that the row's operator lacks is None.
    """
    keys = [row.key for row in rows]
    measured = [row.record.measurement for row in rows]
    return {
        "task": [row.task for row in rows],
        **{
            name: [getattr(key, name) for key in keys]
            for name in ("operator", "target", "space", "fingerprint")
        },
        "conditions": [_text(key.conditions) if key.conditions else None for key in keys],
        "configuration": [list(outcome.config) for outcome in measured],
        "seconds": [outcome.cost if outcome.ok else None for outcome in measured],
        "repeats": [list(outcome.seconds) for outcome in measured],
        "failure": [outcome.failure and str(outcome.failure) for outcome in measured],
        "message": [outcome.message or None for outcome in measured],
        **{name: [getattr(outcome, name) for outcome in measured] for name in Measurement.NUMBERS},
        "origin": [row.origin for row in rows],
        "measured_at": [row.record.measured_at for row in rows],
        **_prefixed(ARGUMENT, [key.arguments for key in keys]),
        **_prefixed(KNOB, [row.record.knobs for row in rows]),
    }


def _prefixed(prefix: str, values: Sequence[Mapping[str, Any]]) -> Columns:
    names = dict.fromkeys(name for row in values for name in row)
    return {f"{prefix}{name}": _uniform([row.get(name) for row in values]) for name in names}


def _uniform(values: list[Any]) -> list[Any]:
    """Values of one simple type unchanged; mixed integers and floats as floats; others as JSON."""
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1 and types <= {bool, int, float, str}:
        return values
    convert = float if types <= {int, float} else _text
    return [None if value is None else convert(value) for value in values]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


SINGLE_FILE_FORMATS: Mapping[str, Callable[[Sequence[Row]], bytes]] = {
    "csv": as_csv,
    "parquet": as_parquet,
}
"""Formats in which all tasks are in one file."""

TASK_FILE_FORMATS: Mapping[str, Callable[[Sequence[Row]], bytes]] = {
    "kernel-tuner": as_cache,
    "t4": as_t4,
}
"""Formats in which each task has a separate file."""


def write_rows(rows: Sequence[Row], form: str, place: Path) -> list[Path]:
    """Write rows to one file, or to one file per task in a folder; return the paths."""
    if not rows:
        raise RecordsError("there is no measurement to export", hint="Run a pipeline first.")
    if form in SINGLE_FILE_FORMATS:
        contents = {place: SINGLE_FILE_FORMATS[form](rows)}
    else:
        tasks = by_task(rows)
        names = _names([task for task, _ in tasks])
        contents = {
            place / f"{name}.json": TASK_FILE_FORMATS[form](some)
            for name, some in zip(names, tasks.values(), strict=True)
        }
    with RecordsError.on_os_error(f"cannot write {place}", hint="Name a place elsewhere."):
        for file, content in contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, content)
    return list(contents)


def _names(tasks: Sequence[str]) -> list[str]:
    """Distinct file names, made from the names of tasks."""
    names: list[str] = []
    for task in tasks:
        name = re.sub(r"[^\w.@-]+", "_", task, flags=re.ASCII).lstrip(".") or "task"
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        names.append(next(new for new in itertools.chain([name], numbered) if new not in names))
    return names
