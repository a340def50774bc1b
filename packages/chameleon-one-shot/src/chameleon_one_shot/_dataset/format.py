"""The files of a data set: ``dataset.json`` and Parquet files; see docs/dataset.md."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.api import words
from chameleon_core.plugin_api import FailureKind, Task
from chameleon_system.api import open_atomic, write_atomic
from numpy.typing import NDArray

from chameleon_one_shot._dataset.tasks import (
    Dataset,
    DatasetError,
    DatasetTask,
    canonical,
    merge_tasks,
)

FORMAT = 1
"""The version of the format, raised when older readers would misread the files."""

MANIFEST, PARTS = "dataset.json", "parts"

_TASK_COLUMNS = ("operator", "arguments", "target", "flop")
"""Columns that are attributes of a ``Task``."""
_GROUP_COLUMNS = (
    "device",
    "threads",
    "space",
    "space_options",
    "fingerprint",
    "versions",
    "source",
)
"""Columns that are attributes of a ``DatasetTask``, the same for all its candidates."""
_JSON = frozenset({"arguments", "device", "space_options", "versions"})
_NUMBERS = ("flop", "threads")
_TEXTS = tuple(name for name in ("task", *_TASK_COLUMNS, *_GROUP_COLUMNS) if name not in _NUMBERS)
_REPEATED = (*_TEXTS[:-2], "failure", "origin", *_TEXTS[-2:])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KINDS = frozenset(FailureKind)


def _pyarrow() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - pyarrow is optional
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise DatasetError(
            "data sets need pyarrow, which is not installed",
            hint="Install it: `pip install pyarrow`.",
        ) from error
    return pa, parquet


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            *((name, pa.dictionary(pa.int32(), pa.string())) for name in _REPEATED),
            ("flop", pa.float64()),
            ("threads", pa.int32()),
            ("knobs", pa.string()),
            ("config", pa.list_(pa.int32())),
            ("seconds", pa.float64()),
            ("measured_at", pa.float64()),
        ]
    )


def create(folder: Path, plan: Mapping[str, Any] | None = None) -> None:
    """Make a folder an empty data set; an existing data set keeps its candidates."""
    _pyarrow()  # raises its error before measurements
    if (folder / MANIFEST).exists():
        read_manifest(folder)
        if plan is None:
            return
    with _write_errors(folder):
        (folder / PARTS).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, "plan": plan}, indent=1)
        write_atomic(folder / MANIFEST, text + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read ``dataset.json``, which has the format version and the plan of a data set."""
    file = folder / MANIFEST
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(
            f"{folder} is no data set: there is no {MANIFEST} in it",
            hint="Name a folder that `chameleon dataset collect` or `import` wrote.",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{file} cannot be read: {error}", hint="Restore it.") from error
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise DatasetError(f"{file} names no format", hint="Restore it from a copy.")
    if value["format"] > FORMAT:
        raise DatasetError(
            f"{folder} is a data set of format {value['format']}, and this version reads {FORMAT}",
            hint="Upgrade chameleon.",
        )
    return value


def write_part(folder: Path, tasks: Iterable[DatasetTask], *, name: str) -> Path:
    """Write candidates as one file (part) of a data set, which replaces a file of that name."""
    if not _NAME.fullmatch(name):
        raise DatasetError(f"{name!r} is no name for a part", hint="Use letters, digits, . _ -")
    pa, parquet = _pyarrow()
    distinct, _ = merge_tasks(tasks)
    for task in distinct:
        problem = _first_problem(task.seconds, task.failures)
        if problem is not None:
            raise DatasetError(f"a candidate of {task.task.key} has {problem}", hint="Leave it out")
    schema = _schema(pa)
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for task in distinct:
        _append(columns, task)
    file = folder / PARTS / f"{name}.parquet"
    with _write_errors(folder):
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(file) as stream:
            parquet.write_table(pa.table(columns, schema=schema), stream, compression="zstd")
    return file


def _append(columns: dict[str, list[Any]], task: DatasetTask) -> None:
    count = len(task)
    constants = {
        "task": task.task.key,
        **{name: getattr(task.task, name) for name in _TASK_COLUMNS},
        **{name: getattr(task, name) for name in _GROUP_COLUMNS},
    }
    for name, value in constants.items():
        columns[name] += [canonical(dict(value)) if name in _JSON else value] * count
    columns["knobs"] += [canonical(dict(choice)) for choice in task.choices]
    columns["config"] += [[]] * count if task.configs is None else task.configs.tolist()
    columns["seconds"] += np.where(np.isinf(task.seconds), np.nan, task.seconds).tolist()
    columns["failure"] += list(task.failures)
    columns["origin"] += list(task.origins)
    columns["measured_at"] += task.measured_at.tolist()


def rows_in(part: Path) -> int:
    """The number of candidates in one file (part) of a data set."""
    _, parquet = _pyarrow()
    return int(parquet.read_metadata(part).num_rows)


def parts_of(folder: Path) -> list[Path]:
    """The Parquet files of a data set, sorted by name."""
    return sorted((folder / PARTS).glob("*.parquet"))


def read_dataset(folder: Path) -> Dataset:
    """Read a data set, without duplicate candidates.

    Args:
        folder: The folder of the data set.

    Raises:
        DatasetError: The folder is no data set, a file is damaged, or a time is not positive. The
            message names the file.
    """
    manifest = read_manifest(folder)
    read = [task for part in parts_of(folder) for task in read_part(part)]
    tasks, duplicates = merge_tasks(read)
    return Dataset(tasks=tasks, plan=manifest.get("plan"), duplicates=duplicates)


def read_part(file: Path) -> list[DatasetTask]:
    """Read the tasks and candidates of one file (part) of a data set, in the file's order."""
    pa, parquet = _pyarrow()
    try:
        table = parquet.read_table(file, schema=_schema(pa))
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise DatasetError(
            f"{file} cannot be read, it is cut off or damaged: {words.in_one_line(error)[-300:]}",
            hint="Take it out of the folder or restore it; the other parts stand by themselves.",
        ) from error
    try:
        return [_task(table, first, last) for first, last in _task_ranges(table)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DatasetError(
            f"{file} has invalid values: {words.in_one_line(error)[-300:]}",
            hint="Take it out of the folder.",
        ) from error


def _task_ranges(table: Any) -> Iterator[tuple[int, int]]:
    """The first row of each task, and the row after its last one."""
    count = table.num_rows
    if not count:
        return
    changes = np.zeros(count, bool)
    for name in (*_TEXTS, "threads"):
        codes = _codes(table, name)
        changes[1:] |= codes[1:] != codes[:-1]
    yield from itertools.pairwise([0, *np.flatnonzero(changes).tolist(), count])


def _codes(table: Any, name: str) -> NDArray[np.int64]:
    column = table.column(name).combine_chunks()
    indices = column.indices if hasattr(column, "indices") else column
    return np.asarray(indices, dtype=np.int64)


def _task(table: Any, first: int, last: int) -> DatasetTask:
    rows = table.slice(first, last - first)
    constants = {name: rows.column(name)[0].as_py() for name in (*_TEXTS, *_NUMBERS)}
    constants |= {name: json.loads(constants[name]) for name in _JSON}
    failures = rows.column("failure").to_pylist()
    seconds = np.asarray(rows.column("seconds"), dtype=np.float64)
    seconds = np.where(np.isnan(seconds), np.inf, seconds)
    problem = _first_problem(seconds, failures)
    if problem is not None:
        raise ValueError(f"a candidate of task {constants['task']} has {problem}")
    task = Task(name=constants["task"], **{name: constants[name] for name in _TASK_COLUMNS})
    if task.key != constants["task"]:
        raise ValueError(f"the key {constants['task']} is not that of its task, {task.key}")
    return DatasetTask(
        task=task,
        **{name: constants[name] for name in _GROUP_COLUMNS},
        configs=_configs(rows.column("config").to_pylist(), constants["task"]),
        choices=[json.loads(text) for text in rows.column("knobs").to_pylist()],
        seconds=seconds,
        failures=failures,
        origins=rows.column("origin").to_pylist(),
        measured_at=np.asarray(rows.column("measured_at"), dtype=np.float64),
    )


def _configs(rows: Sequence[Sequence[int]], key: str) -> NDArray[np.int32] | None:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"configurations of task {key} differ in their number of knobs")
    return None if lengths == {0} else np.array(rows, np.int32)


def _first_problem(seconds: NDArray[np.float64], failures: Sequence[str | None]) -> str | None:
    """The first error in a task's times and failures; None if there is none."""
    failed = np.array([failure is not None for failure in failures], bool)
    unknown = sorted({kind for kind in failures if kind is not None and kind not in _KINDS})
    if unknown:
        return f"the failure {unknown[0]!r}, which is none of {', '.join(sorted(_KINDS))}"
    if np.isfinite(seconds[failed]).any():
        return "both a time and a failure"
    good = seconds[~failed]
    if not (np.isfinite(good) & (good > 0)).all():
        return f"the time {good[~(np.isfinite(good) & (good > 0))][0]} and no failure"
    return None


def _write_errors(folder: Path) -> AbstractContextManager[None]:
    return DatasetError.on_os_error(
        f"cannot write to the data set {folder}",
        hint="Restore access or free space, and give the same command again.",
    )
