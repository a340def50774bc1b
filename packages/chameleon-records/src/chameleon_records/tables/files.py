"""Tables of measurements as CSV and Parquet files, and as a data frame of pandas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from chameleon_records.errors import RecordsError
from chameleon_records.tables.columns import ARGUMENT, KNOB, Columns, columns_of
from chameleon_records.tables.rows import Row, rows_of

_LISTS = {"configuration": "int64", "repeats": "float64"}
_NUMBERS = ("seconds", "max_relative_error", "build_seconds", "run_seconds", "measured_at")


def as_csv(rows: Sequence[Row]) -> bytes:
    """Rows as a CSV file in UTF-8 (RFC 4180): lists are JSON, what is missing is empty."""
    columns = columns_of(rows)
    for name in _LISTS:
        columns[name] = [json.dumps(one) for one in columns[name]]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def as_parquet(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file.

    Raises:
        RecordsError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
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
    """The measurements of a run folder or a record database, one row each.

    Args:
        place: a run folder, or the place of a record database; the user's own where None.

    Returns:
        A ``pandas.DataFrame`` with the columns of :func:`.columns_of`, ``measured_at`` as dates in
        UTC.

    Raises:
        RecordsError: pandas is not installed, or there is nothing at the place.
        RunFolderError: the run folder cannot be read.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - optional
    except ImportError as error:
        raise _missing("pandas", "make a data frame") from error
    columns: Columns = columns_of(rows_of(place))
    frame = pd.DataFrame(columns)
    for name in _NUMBERS:
        frame[name] = frame[name].astype("float64")
    frame["measured_at"] = pd.to_datetime(frame["measured_at"], unit="s", utc=True)
    return frame


def _arrow_type(pa: Any, name: str) -> Any:
    """The type of a column; None where its values tell it."""
    if name in _LISTS:
        return pa.list_(pa.type_for_alias(_LISTS[name]))
    if name in _NUMBERS:
        return pa.float64()
    return None if name.startswith((ARGUMENT, KNOB)) else pa.string()


def _missing(library: str, purpose: str) -> RecordsError:
    """The error where an optional library is not installed."""
    return RecordsError(
        f"{library} is needed to {purpose}, and it is not installed",
        hint=f"Install it (`pip install {library}`), or take `--to csv`.",
    )


__all__ = ["as_csv", "as_parquet", "dataframe"]
