"""Notices that everything fails for one reason, which no search can do anything about.

A target that this machine cannot run, a reference that is wrong, a missing compiler: every
configuration fails, in the same words, and the budget would buy nothing but repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import SameFailure

_BATCHES = 2

_FEWEST = 16
"""Fewer configurations say too little: where one in six of a space works, as many in a row fail by
chance once in 18 runs (``(5 / 6) ** 16``)."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][-+]?\d+)?")


def convincing(wanted: SameFailure | None, *, batch_size: int) -> int | None:
    """How many measurements have to fail alike before it is no coincidence; None for never.

    Args:
        wanted: what the budget says.
        batch_size: configurations per batch.
    """
    return max(_BATCHES * batch_size, _FEWEST) if wanted == "auto" else wanted


def same_failure(measurements: Sequence[Measurement], at_least: int) -> str | None:
    """The failure that measurements share, in words.

    Two failures are the same where their kinds are and their words are; sizes, times and addresses
    in them may differ.

    Args:
        measurements: of one task, or of several.
        at_least: as many measurements there have to be.

    Returns:
        The first one's kind and message; None where one is valid, fails otherwise, or there are
        too few.
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


__all__ = ["convincing", "same_failure"]
