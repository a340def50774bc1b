"""What measuring one configuration gives: times in seconds, or a typed failure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from functools import cached_property

import attrs


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


@attrs.frozen(kw_only=True)
class Measurement:
    """The outcome of building, checking and timing one configuration.

    Attributes:
        config: knob indices, one per knob of the space.
        seconds: one mean kernel time per repeat, in seconds; empty where it failed.
        failure: the kind of failure, or None.
        message: the failure in words; empty where there is none.
        max_relative_error: largest difference from the reference output over the reference's
            largest magnitude; None where outputs were not compared.
        build_seconds: wall-clock spent building, in seconds.
        run_seconds: wall-clock spent checking and timing, in seconds.
    """

    config: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    failure: FailureKind | None = None
    message: str = ""
    max_relative_error: float | None = None
    build_seconds: float = 0.0
    run_seconds: float = 0.0

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


def failures_by_kind(measurements: Iterable[Measurement]) -> dict[str, int]:
    """How many measurements failed in which way, in order of the first of each."""
    return dict(Counter(m.failure.value for m in measurements if m.failure is not None))


def most_frequent_failure(measurements: Collection[Measurement]) -> str | None:
    """The first failure of the most frequent kind, in words; None where nothing failed."""
    failed = failures_by_kind(measurements)
    if not failed:
        return None
    kind = max(failed, key=lambda name: failed[name])
    return next(f"{kind}: {m.message}" for m in measurements if m.failure == kind)
