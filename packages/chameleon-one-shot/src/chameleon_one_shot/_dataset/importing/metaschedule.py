"""Reads databases of TVM's MetaSchedule (``JSONDatabase``) as JSON, without running any code.

A line of the first file is a workload: its hash and its TensorIR module, as ``tvm.ir.save_json``
writes it. A line of the second file is a record: ``[workload, [[instructions, decisions], seconds,
target, argument types]]`` (``TuningRecord.as_json`` of tvm.s_tir.meta_schedule).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FailureKind, Task

from chameleon_one_shot._dataset.tasks import DatasetError, DatasetTask, canonical, rename_by_key

OPERATOR = "metaschedule"
"""The ``Task.operator`` of workloads, of which only the hash, blocks and buffers are known."""

_FAILURE_SECONDS = 1e9
"""Seconds above which a time means a failure in MetaSchedule's files."""

_BLOCKS = frozenset({"tir.Block", "tir.SBlock", "s_tir.SBlock"})
"""The node types of blocks in several versions of TVM."""

_KNOBS = {
    "SamplePerfectTile": "tile",
    "SamplePartitionedTile": "tile",
    "SampleCategorical": "choice",
    "SampleComputeLocation": "compute_at",
}
"""Instructions that make a decision, and the names of their knobs."""


@attrs.frozen(kw_only=True)
class _Record:
    workload: int
    knobs: dict[str, Any]
    seconds: float
    target: str
    buffers: list[list[Any]]
    iterations: float


def files_of(folder: Path) -> tuple[Path, Path] | None:
    """The files of workloads and records of a MetaSchedule database in a folder, or None."""
    pair = []
    for what in ("workload", "tuning_record"):
        files = sorted(folder.glob(f"*{what}.json")) + sorted(folder.glob(f"*{what}.json.gz"))
        if len(files) != 1:
            return None
        pair.append(files[0])
    return pair[0], pair[1]


def tasks_of_database(workloads: Path, records: Path, *, source: str) -> list[DatasetTask]:
    """Read all records of a MetaSchedule database as tasks of a data set."""
    modules = []
    for number, value in enumerate(_lines(workloads), 1):
        with _reading_line(workloads, number, "workload"):
            modules.append((str(value[0]), _blocks(value[1])))
    groups: dict[tuple[int, str], list[_Record]] = {}
    for number, value in enumerate(_lines(records), 1):
        with _reading_line(records, number, "record"):
            record = _record(value)
            modules[record.workload]
        groups.setdefault((record.workload, record.target), []).append(record)
    return [_task(*modules[at], group, source) for (at, _), group in sorted(groups.items())]


@contextlib.contextmanager
def _reading_line(file: Path, number: int, what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise DatasetError(
            f"line {number} of {file} is no {what} of MetaSchedule: {error}",
            hint="Name the folder of a database that MetaSchedule wrote.",
        ) from error


def _lines(file: Path) -> Iterator[Any]:
    try:
        content = file.read_bytes()
        text = gzip.decompress(content) if file.suffix == ".gz" else content
        for line in text.splitlines():
            if line.strip():
                yield json.loads(line)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DatasetError(
            f"{file} cannot be read: {error}", hint="Fetch or record the file anew."
        ) from error


def _record(value: Sequence[Any]) -> _Record:
    workload, ((instructions, decisions), seconds, target, buffers) = value
    decided = {int(at): decision for at, decision in decisions}
    counts: Counter[str] = Counter()
    knobs: dict[str, Any] = {"sketch": _digest(_structure(instructions))}
    tiles: list[list[int]] = []
    for at, (name, _, attributes, _) in enumerate(instructions):
        if name not in _KNOBS or at not in decided:
            continue
        kind, decision = _KNOBS[name], decided[at]
        if name == "SampleCategorical":
            decision = attributes[0][int(decision)]
        if kind == "tile":
            tiles.append([int(factor) for factor in decision])
            decision = tiles[-1]
        knobs[f"{kind}.{counts[kind]}"] = decision
        counts[kind] += 1
    times = list(map(float, seconds))
    good = bool(times) and all(0.0 < time < _FAILURE_SECONDS for time in times)
    return _Record(
        workload=int(workload),
        knobs=knobs,
        seconds=float(np.median(times)) if good else math.inf,
        target=canonical(target),
        buffers=[[str(dtype), [int(size) for size in shape]] for _, dtype, shape in buffers],
        iterations=math.prod(math.prod(tile) for tile in tiles) if tiles else 0.0,
    )


def _structure(instructions: Sequence[Sequence[Any]]) -> list[Any]:
    """Instructions without the attributes that depend on decisions."""
    return [[name, inputs, outputs] for name, inputs, _, outputs in instructions]


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]


def _blocks(encoded: Any) -> list[str]:
    """The names of a module's blocks in the order of the program; empty if they cannot be read."""
    try:
        content = base64.b64decode(encoded)
        nodes = json.loads(content[content.index(b"{") :])["nodes"]
        hints = [node["attrs"]["name_hint"] for node in nodes if node["type_key"] in _BLOCKS]
        names = [nodes[int(hint)]["repr_str"] if hint.isdecimal() else hint for hint in hints]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return []
    return [str(name) for name in names if name != "root"]


def _task(workload: str, blocks: list[str], records: Sequence[_Record], source: str) -> DatasetTask:
    first = records[0]
    # A multiplication and an addition in each iteration of the tiled block.
    flop = 2.0 * max(record.iterations for record in records)
    task = Task(
        name=workload,
        operator=OPERATOR,
        arguments={"workload": workload, "blocks": blocks, "buffers": first.buffers},
        target=first.target,
        flop=flop,
    )
    failed = [math.isinf(record.seconds) for record in records]
    return DatasetTask(
        task=rename_by_key(task),
        device={"kind": json.loads(first.target).get("kind", "")},
        source=source,
        choices=[record.knobs for record in records],
        seconds=np.array([record.seconds for record in records]),
        failures=[FailureKind.RUN_ERROR.value if failure else None for failure in failed],
    )
