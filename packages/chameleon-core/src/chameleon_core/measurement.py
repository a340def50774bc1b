"""Measurements: times in seconds or a typed failure, and the seconds that a task took."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import attrs


@attrs.frozen(kw_only=True)
class Spending:
    """Wall-clock of one task in seconds, summed over every process that worked on it.

    Work that a resumed run only repeats to get back to where it was is not counted again.

    Attributes:
        search: in explorer, sampler and synthesizer, cost-model predictions included.
        model: in fitting the cost model and in ``observe`` of the other stages.
        measure: waiting for the runner.
        build: building, summed over measurements; with several workers more than ``measure``.
        run: checking and timing, summed over measurements.
    """

    search: float = 0.0
    model: float = 0.0
    measure: float = 0.0
    build: float = 0.0
    run: float = 0.0

    @property
    def total(self) -> float:
        """Wall-clock of the task in seconds (``build`` and ``run`` are part of ``measure``)."""
        return self.search + self.model + self.measure

    def plus(self, **seconds: float) -> Spending:
        """The same with some seconds added."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + value for name, value in seconds.items()}
        )

    def __add__(self, other: Spending) -> Spending:
        return self.plus(**attrs.asdict(other))


_BATCHES = 2

_FEWEST = 16
"""Fewer configurations say too little: where one in six of a space works, as many in a row fail by
chance once in 18 runs (``(5 / 6) ** 16``)."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][-+]?\d+)?")


class FailureKind(StrEnum):
    """Why a configuration has no time."""

    INVALID = "invalid"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_OUTPUT = "wrong_output"
    DEVICE_LOST = "device_lost"


def _number(default: float | None) -> Any:
    """A field that stores, record databases, tables and data frames have as a column."""
    return attrs.field(default=default, metadata={"number": True})


@attrs.frozen(kw_only=True)
class Measurement:
    """The outcome of building, checking and timing one configuration.

    Attributes:
        config: knob indices, one per knob of the space.
        seconds: one mean kernel time per repeat, in seconds; empty if it failed.
        failure: the kind of failure, or None.
        message: the failure in words; empty if there is none.
        max_relative_error: largest difference from the reference output over the reference's
            largest magnitude; None if outputs were not compared.
        build_seconds: wall-clock spent building, in seconds.
        run_seconds: wall-clock spent checking and timing, in seconds.
    """

    config: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    failure: FailureKind | None = None
    message: str = ""
    max_relative_error: float | None = _number(None)
    build_seconds: float = _number(0.0)
    run_seconds: float = _number(0.0)

    def __attrs_post_init__(self) -> None:
        if (self.failure is None) != bool(self.seconds):
            raise ValueError("a measurement has either times or a failure")

    @property
    def ok(self) -> bool:
        """Whether the configuration was built, checked and timed."""
        return self.failure is None

    @cached_property
    def cost(self) -> float:
        """Median of the repeats in seconds; infinity for a failure."""
        return statistics.median(self.seconds) if self.seconds else float("inf")


NUMBERS: Mapping[str, float | None] = {
    field.name: field.default for field in attrs.fields(Measurement) if "number" in field.metadata
}
"""The numbers of a measurement beside its times, with their defaults: finite, not negative."""


def failures_by_kind(measurements: Iterable[Measurement]) -> dict[str, int]:
    """How many measurements failed in which way, in order of the first of each."""
    return dict(Counter(m.failure.value for m in measurements if m.failure is not None))


def most_frequent_failure(measurements: Collection[Measurement]) -> str | None:
    """The first failure of the most frequent kind, in words; None if nothing failed."""
    failed = failures_by_kind(measurements)
    if not failed:
        return None
    kind = max(failed, key=lambda name: failed[name])
    return next(f"{kind}: {m.message}" for m in measurements if m.failure == kind)


def convincing(wanted: int | Literal["auto"] | None, *, batch_size: int) -> int | None:
    """How many measurements have to fail alike before it is no coincidence; None for never.

    A target that this machine cannot run, a reference that is wrong, a missing compiler: every
    configuration fails, in the same words. The budget would buy nothing but repetitions.

    Args:
        wanted: what the budget says.
        batch_size: configurations per batch.
    """
    return max(_BATCHES * batch_size, _FEWEST) if wanted == "auto" else wanted


def same_failure(measurements: Sequence[Measurement], at_least: int) -> str | None:
    """The failure that measurements share, in words.

    Two failures are the same if their kinds are and their words are; sizes, times and addresses
    in them may differ.

    Args:
        measurements: of one task, or of several.
        at_least: as many measurements there have to be.

    Returns:
        The kind and message of the first; None if one is valid, fails otherwise, or there are too
        few.
    """
    if len(measurements) < max(1, at_least):
        return None
    first = measurements[0]
    kind, words = first.failure, _words(first)
    if kind is None or any(m.failure is not kind or _words(m) != words for m in measurements):
        return None
    return f"{kind}: {first.message}" if first.message else str(kind)


def _words(measurement: Measurement) -> str:
    return _NUMBER.sub("#", measurement.message)
