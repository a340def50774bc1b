"""Whether a compiled network gives the framework's answers, and which kernel is to blame if not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

TOLERANCE = 1e-3
"""Largest accepted |difference| over the largest |expected|, in float32: a hundred times what
rounding makes of the networks here, a hundredth of what a wrong kernel does."""

ROUNDINGS = 16
"""A framework's own answers in half precision may be off by so many roundings of one number:
several times what networks of fifty layers were seen to lose there."""

SAMPLES = 3
"""Random inputs that are compared."""

Run = Callable[[Arrays], Arrays]


@attrs.frozen(kw_only=True)
class Verdict:
    """Outcome of a comparison.

    Attributes:
        max_relative_error: over all samples and outputs; None where nothing could be compared.
        problem: a sentence where the network is not fit to be delivered.
    """

    max_relative_error: float | None
    problem: str | None = None


def compared(
    run: Run,
    samples: Sequence[Arrays],
    expected: Sequence[Arrays],
    *,
    tolerance: float = TOLERANCE,
) -> Verdict:
    """Compare a network's outputs with the expected ones.

    Args:
        run: the network; what it raises is a verdict too.
        samples: inputs.
        expected: the reference's outputs for each.
        tolerance: largest accepted |difference| over the largest |expected|.
    """
    worst = 0.0
    for inputs, wanted in zip(samples, expected, strict=True):
        try:
            got = run(inputs)
        except ChameleonError as error:
            return Verdict(max_relative_error=None, problem=str(error))
        found = agreement(got, wanted, tolerance=tolerance)
        if found.max_relative_error is None or found.problem is not None:
            return found
        worst = max(worst, found.max_relative_error)
    return Verdict(max_relative_error=worst)


def agreement(got: Arrays, wanted: Arrays, *, tolerance: float = TOLERANCE) -> Verdict:
    """Compare a network's outputs for one sample with the expected ones.

    Args:
        got: the network's.
        wanted: the reference's.
        tolerance: as for ``compared``.
    """
    if [one.shape for one in got] != [one.shape for one in wanted]:
        return Verdict(
            max_relative_error=None,
            problem=f"outputs have the shapes {[one.shape for one in got]} instead of "
            f"{[one.shape for one in wanted]}",
        )
    worst = max((_error(one, other) for one, other in zip(got, wanted, strict=True)), default=0.0)
    if worst <= tolerance:
        return Verdict(max_relative_error=worst)
    return Verdict(
        max_relative_error=worst if np.isfinite(worst) else None,
        problem=f"its outputs are off by {worst:.1e} of the largest one, where "
        f"{tolerance:.0e} is allowed",
    )


def _error(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Largest difference over the largest magnitude; infinite where numbers are missing."""
    scale = float(np.abs(wanted.astype(np.float64)).max(initial=0.0))
    difference = float(np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0))
    if not np.isfinite(difference):
        return float("inf")
    return difference / scale if scale else difference


def guilty(keys: Sequence[str], fails: Callable[[frozenset[str]], bool]) -> list[str]:
    """The tasks whose kernels make a network fail, found by bisection.

    Args:
        keys: tasks that have a tuned kernel, with which the network fails.
        fails: whether the network fails with the tuned kernels of these tasks alone.

    Returns:
        One task; several where they fail only together; none where it fails without any.
    """
    if fails(frozenset()):
        return []
    suspects = list(keys)
    while len(suspects) > 1:
        middle = len(suspects) // 2
        halves = suspects[:middle], suspects[middle:]
        found = next((half for half in halves if fails(frozenset(half))), None)
        if found is None:
            return suspects
        suspects = found
    return suspects
