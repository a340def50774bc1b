"""Measurements: times in seconds or a kind of failure, and the seconds of a task's search."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Literal

import attrs


@attrs.frozen(kw_only=True)
class Spending:
    """Wall-clock time of one task's search in seconds, summed over all processes of the run.

    A resumed run repeats the search up to its interruption. This repeated work does not count
    again.

    Attributes:
        search: seconds in explorer, sampler and synthesizer, including the cost model's
            predictions.
        model: seconds in fitting the cost model and in ``observe`` of the other stages.
        measure: seconds of waiting for the runner.
        build: seconds of building, summed over measurements. With several workers, the sum may
            exceed ``measure``.
        run: seconds of checking and timing, summed over measurements.
    """

    search: float = 0.0
    model: float = 0.0
    measure: float = 0.0
    build: float = 0.0
    run: float = 0.0

    @property
    def total(self) -> float:
        """Wall-clock time of the search in seconds: ``search``, ``model`` and ``measure``.

        ``build`` and ``run`` are not added, because ``measure`` covers them.
        """
        return self.search + self.model + self.measure

    def plus(self, **seconds: float) -> Spending:
        """A copy with seconds added to the named parts."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + value for name, value in seconds.items()}
        )

    def __add__(self, other: Spending) -> Spending:
        return self.plus(**attrs.asdict(other))


_BATCHES = 2

_FEWEST = 16
"""Fewest failures that are no coincidence. If one in six configurations of a space works, this many
in a row fail by chance in one of 18 runs (``(5 / 6) ** 16``)."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][-+]?\d+)?")


class FailureKind(StrEnum):
    """The kind of failure of a configuration that has no time."""

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
        config: the index of each knob's value, one per knob of the space.
        seconds: the mean kernel time of each repeat, in seconds; empty if the configuration failed.
        failure: the kind of failure, or None if the configuration succeeded.
        message: the description of the failure; empty if the configuration succeeded.
        max_relative_error: the largest difference from the reference's output, divided by the
            reference's largest magnitude. None if outputs were not compared.
        build_seconds: the wall-clock time of building, in seconds.
        run_seconds: the wall-clock time of checking and timing, in seconds.
    """

    class Origin(StrEnum):
        """The stage that proposed a configuration."""

        INITIAL = "initial"
        """A first guess of the space, or a random configuration of the batch before any search."""

        SUGGESTION = "suggestion"
        """The best configuration of another task or of an earlier run, or one that the user
        enqueued."""

        EXPLORER = "explorer"
        """A candidate of the explorer that the sampler kept."""

        SAMPLER = "sampler"
        """A configuration that the sampler added, which was no candidate of the explorer."""

        SYNTHESIZER = "synthesizer"
        """A configuration with which the synthesizer replaced another one."""

        RECORD = "record"
        """A record of another run, which this run did not measure."""

        FALLBACK = "fallback"
        """A configuration that the loop added because the stages proposed too few legal, new ones.
        It is a remaining first guess, a random configuration, or a neighbour of a measured one."""

    TIE: ClassVar = 0.02
    """A time ties with the lowest time if it is longer by at most this share."""

    config: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    failure: FailureKind | None = None
    message: str = ""
    max_relative_error: float | None = None
    build_seconds: float = 0.0
    run_seconds: float = 0.0

    NUMBERS: ClassVar = ("max_relative_error", "build_seconds", "run_seconds")
    """The names of the numbers, without the times. The numbers are finite and not negative."""

    def __attrs_post_init__(self) -> None:
        if (self.failure is None) != bool(self.seconds):
            raise ValueError("a measurement has either times or a failure")

    @property
    def ok(self) -> bool:
        """Whether the configuration was built, checked and timed without a failure."""
        return self.failure is None

    @cached_property
    def cost(self) -> float:
        """Median of the repeats in seconds; infinity for a failure."""
        return statistics.median(self.seconds) if self.seconds else float("inf")


def failures_by_kind(measurements: Iterable[Measurement]) -> dict[str, int]:
    """The number of failures of each kind, in the order in which the kinds first occurred.

    Args:
        measurements: the measurements of a task.
    """
    return dict(Counter(m.failure.value for m in measurements if m.failure is not None))


def most_frequent_failure(measurements: Collection[Measurement]) -> str | None:
    """The kind of failure that occurs most often, with the message of its first occurrence.

    The result is None if nothing failed.

    Args:
        measurements: the measurements of a task.
    """
    failed = failures_by_kind(measurements)
    if not failed:
        return None
    kind = max(failed, key=lambda name: failed[name])
    return next(f"{kind}: {m.message}" for m in measurements if m.failure == kind)


def failure_threshold(
    wanted: int | Literal["auto"] | None, *, batch_size: int, failure: FailureKind | None = None
) -> int | None:
    """The number of equal failures after which a search ends; None if there is no such limit.

    A target that the machine cannot run, a wrong reference or a missing compiler makes every
    configuration fail with the same message. Further measurements would only repeat the failure.

    Args:
        wanted: the value of ``same_failure`` in the pipeline's budget: a number, ``"auto"`` (two
            batches, but at least 16) or None.
        batch_size: the number of configurations per batch.
        failure: the kind of the failures. With ``"auto"``, half as many failures for lack of memory
            are enough, because each may end a worker, whose replacement takes seconds.
    """
    if wanted != "auto":
        return wanted
    count = max(_BATCHES * batch_size, _FEWEST)
    return count // _BATCHES if failure is FailureKind.OUT_OF_MEMORY else count


def same_failure(measurements: Sequence[Measurement], at_least: int) -> str | None:
    """The failure that all measurements share, as its kind and message, or None.

    The search of a task ends early if all of its measurements fail alike.

    Two failures are the same if they have the same kind and the same message. Numbers in the
    messages, such as sizes, times and addresses, may differ. Messages about a lack of memory may
    differ in all words, since each library has its own.

    Args:
        measurements: the measurements of one task, or of several tasks.
        at_least: the smallest number of measurements for which a failure is returned.

    Returns:
        The kind and message of the first failure. None if a measurement succeeded, if the failures
        differ, or if there are fewer than ``at_least`` measurements.
    """
    if len(measurements) < max(1, at_least):
        return None
    first = measurements[0]
    kind, words = first.failure, _words(first)
    if kind is None or any(m.failure is not kind or _words(m) != words for m in measurements):
        return None
    return f"{kind}: {first.message}" if first.message else str(kind)


def _words(measurement: Measurement) -> str:
    if measurement.failure is FailureKind.OUT_OF_MEMORY:
        return ""
    return _NUMBER.sub("#", measurement.message)
