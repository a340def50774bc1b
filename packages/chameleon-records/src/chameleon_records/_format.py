"""Records as lines of JSON, the format of exported files (docs/records.md), and their merging.

A file has a header, a line for each key, followed by a line for each of its records, and the number
of records. All values are checked, because anybody may have written the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from chameleon_core.plugin_api import (
    ChameleonError,
    ExitCode,
    FailureKind,
    Measurement,
    RecordDatabase,
)


class RecordsError(ChameleonError):
    """A record database cannot be read or written as requested."""

    exit_code = ExitCode.USAGE


VERSION = 1
"""The version of the format. Files of a newer version are refused."""

NAME = "chameleon-records"

Records = dict[RecordDatabase.Key, list[RecordDatabase.Record]]

T = TypeVar("T")

_LONGEST_MESSAGE = 2000
_MOST_KNOBS = 4096
_MOST_REPEATS = 100_000
_DEEPEST = 60


def dump(records: Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]) -> bytes:
    """The content of a file with records, which ``load`` reads."""
    lines: list[Any] = [{"format": NAME, "version": VERSION}]
    for key, of_key in sorted(records.items(), key=lambda pair: pair[0].digest):
        if of_key:
            lines += [{"key": key.to_json()}, *sorted(map(record_to_json, of_key), key=_text)]
    lines.append({"end": sum(map(len, records.values()))})
    return "".join(f"{_text(line)}\n" for line in lines).encode()


def load(content: bytes, place: str) -> Records:
    """Read records from the content of a file that ``dump`` wrote, and check them."""
    lines = _lines(content, place)
    header = next(lines, None)
    if not isinstance(header, dict) or header.get("format") != NAME:
        raise RecordsError(
            f"{place} holds no records", hint="Name a file that `chameleon records export` wrote."
        )
    check_version(header.get("version"), place)
    loaded: Records = {}
    records: list[RecordDatabase.Record] = []
    count, ended = 0, False
    for number, line in enumerate(lines, 2):
        if ended or not isinstance(line, dict):
            raise _line_error(
                place, number, "nothing may follow the last line, and all are mappings"
            )
        if not loaded and not line.keys() & {"key", "end"}:
            raise _line_error(place, number, "a record comes before any key")
        try:
            if "end" in line:
                ended = line["end"] == count
                continue
            if "key" in line:
                records = loaded.setdefault(key_from_json(line["key"]), [])
            else:
                records.append(record_from_json(line))
                count += 1
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise _line_error(place, number, str(error)) from error
    if not ended:
        raise RecordsError(
            f"{place} is cut off: its last line is not there",
            hint="Copy or export it again; a file that is being written has another name.",
        )
    return loaded


def check_version(version: object, place: str) -> None:
    """Raise an error if a file of records was written by a newer version of Chameleon."""
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION:
        raise RecordsError(
            f"{place} has the format {version!r}; this version of chameleon reads {VERSION}",
            hint="Upgrade chameleon here, or export the records with a version as old as this.",
        )


def record_to_json(record: RecordDatabase.Record) -> dict[str, Any]:
    """A record as JSON values, without empty ones."""
    measured = record.measurement
    values: dict[str, Any] = {
        "config": list(measured.config),
        "knobs": dict(record.knobs),
        "seconds": list(measured.seconds),
        "failure": None if measured.failure is None else str(measured.failure),
        "message": printable(measured.message),
        **{name: getattr(measured, name) for name in Measurement.NUMBERS},
        "measured_at": record.measured_at,
        "spent_seconds": record.spent_seconds,
    }
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def normalise(record: RecordDatabase.Record) -> RecordDatabase.Record:
    """Convert a record to the form that it has after writing and reading, for the same rank."""
    return record_from_json(json.loads(_text(record_to_json(record))))


def record_from_json(value: Mapping[str, Any]) -> RecordDatabase.Record:
    """Read a record from the output of ``record_to_json``."""
    repeats = _typed(value.get("seconds", []), list, "list")
    seconds = tuple(_number(repeat, "a time") for repeat in repeats)
    if not all(repeat > 0.0 for repeat in seconds) or len(seconds) > _MOST_REPEATS:
        raise ValueError("times are positive")
    failure = value.get("failure")
    numbers = {name: value[name] for name in Measurement.NUMBERS if value.get(name) is not None}
    return RecordDatabase.Record(
        measurement=Measurement(
            config=config_of(value["config"]),
            seconds=seconds,
            failure=None if failure is None else FailureKind(failure),
            message=printable(_typed(value.get("message", ""), str, "text")),
            **{name: _number(number, f"`{name}`") for name, number in numbers.items()},
        ),
        knobs=_mapping(value["knobs"]),
        measured_at=_number(value["measured_at"], "a date"),
        spent_seconds=_number(value.get("spent_seconds", 0.0), "a duration"),
    )


def key_from_json(value: Any) -> RecordDatabase.Key:
    """Read a key from the output of ``Key.to_json``."""
    fields = _mapping(value)
    names = ("operator", "target", "space", "fingerprint")
    texts = {name: _typed(fields[name], str, "text") for name in names}
    arguments, conditions = _mapping(fields["arguments"]), _mapping(fields["conditions"])
    json.dumps([arguments, conditions], allow_nan=False)
    return RecordDatabase.Key(**texts, arguments=arguments, conditions=conditions)


def config_of(value: Any) -> tuple[int, ...]:
    """Check the JSON value of a configuration, and convert it to knob indices."""
    config = tuple(_typed(value, list, "list"))
    if any(isinstance(index, bool) or not isinstance(index, int) for index in config):
        raise TypeError("a configuration is a list of indices")
    if len(config) > _MOST_KNOBS or any(not 0 <= index < 1 << 31 for index in config):
        raise ValueError("indices of a configuration are not negative, and not endless")
    return config


def printable(text: str) -> str:
    """A message without control characters, cut to 2000 characters."""
    text = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
    return text[:_LONGEST_MESSAGE]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _lines(content: bytes, place: str) -> Iterator[Any]:
    for number, line in enumerate(content.splitlines(), 1):
        try:
            yield json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            if number == 1:
                return
            why = f"it is no JSON, as where a file is cut off ({error})"
            raise _line_error(place, number, why) from error


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _line_error(place: str, number: int, why: str) -> RecordsError:
    return RecordsError(
        f"{place}, line {number}: {printable(why)}",
        hint="Copy or export the file again; nothing of it was used.",
    )


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number")
    number = float(value)
    if not math.isfinite(number) or number < 0.0:
        raise ValueError(f"{what} is finite and not negative")
    return number


def _typed(value: Any, kind: type[T], noun: str) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"a {noun} is missing")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    mapping: dict[str, Any] = _typed(value, dict, "mapping")
    if _depth(mapping) > _DEEPEST:
        raise ValueError("it is nested too deeply")
    return mapping


def _depth(value: Any) -> int:
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    return 1 + max(map(_depth, inner), default=0)


Config = tuple[int, ...]


class Table:
    """Records in memory, by key and configuration; of each configuration, the lowest rank stays."""

    def __init__(
        self, tables: Iterable[Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]] = ()
    ) -> None:
        self._records: dict[RecordDatabase.Key, dict[Config, RecordDatabase.Record]] = {}
        for records in tables:
            self.merge(records)

    def merge(self, added: Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]) -> Records:
        """Add records, and return those that changed the table."""
        changed: Records = {}
        for key, records in added.items():
            known = self._records.setdefault(key, {})
            for record in map(normalise, records):
                config = record.measurement.config
                if config not in known or record.rank < known[config].rank:
                    known[config] = record
                    changed.setdefault(key, []).append(record)
        return changed

    def keys(self, like: RecordDatabase.Key | None = None) -> list[RecordDatabase.Key]:
        """The keys that have records, of the same family as ``like``, sorted by digest."""
        keys = (key for key, records in self._records.items() if records)
        alike = (key for key in keys if like is None or key.family == like.family)
        return sorted(alike, key=lambda key: key.digest)

    def records(self, key: RecordDatabase.Key) -> list[RecordDatabase.Record]:
        """The records of a key, sorted by configuration."""
        return [record for _, record in sorted(self._records.get(key, {}).items())]

    def all_records(self) -> Records:
        return {key: self.records(key) for key in self.keys()}
