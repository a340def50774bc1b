"""Measurements and contenders from the rows and JSON values that hold them."""

from __future__ import annotations

import json
from typing import Any

from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender, StageRef


def dumped(value: Any) -> str:
    """JSON as rows hold it."""
    return json.dumps(value, separators=(",", ":"))


def measurement_of(row: tuple[Any, ...]) -> Measurement:
    """A measurement; the row's columns are those that ``RecordStore`` selects, in their order."""
    config, seconds, failure, message, error, build_seconds, run_seconds = row
    return Measurement(
        config=tuple(json.loads(config)),
        seconds=tuple(json.loads(seconds)),
        failure=None if failure is None else FailureKind(failure),
        message=message,
        max_relative_error=error,
        build_seconds=build_seconds,
        run_seconds=run_seconds,
    )


def compared_of(value: dict[str, Any]) -> Measurement:
    """A measurement of a comparison, from its JSON values."""
    kind = value["failure"]
    return Measurement(
        **{
            **value,
            "config": tuple(value["config"]),
            "seconds": tuple(value["seconds"]),
            "failure": None if kind is None else FailureKind(kind),
        }
    )


def contender_of(value: dict[str, Any]) -> Contender:
    """A contender of a comparison, from its JSON values."""
    return Contender(
        **{**value, "config": tuple(value["config"]), "stage": StageRef(**value["stage"])}
    )


__all__ = ["compared_of", "contender_of", "dumped", "measurement_of"]
