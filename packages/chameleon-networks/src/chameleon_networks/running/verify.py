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

ILL_CONDITIONED = 1e-1
"""The same if the framework's own rounding is larger than ``TOLERANCE``. Above it a wrong kernel
would go unnoticed."""

_ROUNDINGS_APART = 2.0
"""Two right answers may be on either side of the exact one, each off by its own rounding."""

ROUNDINGS = 16
"""A framework's own answers in half precision may be off by so many roundings of one number:
several times what networks of fifty layers were seen to lose there."""

QUANTIZED_TOLERANCE = ROUNDINGS * 0.5 / 255
"""The same of quantized networks, of uint8: what is nearly half-way between two numbers is rounded
to one or the other with the order that sums of float32 are added up in, and differs by a step."""

NUDGE = 2.0**-17
"""What inputs of quantized networks are changed by, relative to each: as much as sums of a thousand
products in float32 are off by, and enough to move some of an image's numbers to the next step."""

SAMPLES = 3
"""Random inputs that are compared."""

Run = Callable[[Arrays], Arrays]


@attrs.frozen(kw_only=True)
class OutputCheck:
    """Outcome of a comparison.

    Attributes:
        max_relative_error: over all samples and outputs; None if nothing could be compared.
        problem: a sentence if the network is not fit to be delivered.
    """

    max_relative_error: float | None
    problem: str | None = None

    @property
    def may_be_rounding(self) -> bool:
        """Whether a network that fails could do so for the framework's own rounding."""
        error = self.max_relative_error
        return self.problem is not None and error is not None and error <= ILL_CONDITIONED


def compared(
    run: Run,
    samples: Sequence[Arrays],
    expected: Sequence[Arrays],
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] | None = None,
) -> OutputCheck:
    """Compare a network's outputs with the expected ones.

    Args:
        run: the network; what it raises is a verdict too.
        samples: inputs.
        expected: the reference's outputs for each.
        tolerance: largest accepted |difference| over the largest |expected|.
        scales: as for ``agreement``.
    """
    worst = 0.0
    for inputs, wanted in zip(samples, expected, strict=True):
        try:
            got = run(inputs)
        except ChameleonError as error:
            return OutputCheck(max_relative_error=None, problem=str(error))
        check = agreement(got, wanted, tolerance=tolerance, scales=scales)
        if check.max_relative_error is None or check.problem is not None:
            return check
        worst = max(worst, check.max_relative_error)
    return OutputCheck(max_relative_error=worst)


@attrs.frozen(kw_only=True)
class Conditioning:
    """How far a framework's own answers in float32 are from those in float64.

    Some networks amplify roundings. An attention whose scores are in the hundreds takes the largest
    one alone, which may be another one after it. (Higham, Accuracy and Stability of Numerical
    Algorithms, section 1.6: the error of a backward stable method is the problem's condition number
    times the rounding.) In a quantized network a rounding may move a number to the next step. Then
    the exact answers are those of the same network with its inputs changed by as little.

    Attributes:
        own_error: the largest |difference| over the largest |exact| of all samples.
        nudged: whether what it is compared with are answers for other inputs, those of ``nudged``.
    """

    own_error: float
    nudged: bool = False

    @classmethod
    def of(
        cls, answers: Sequence[Arrays], exact: Sequence[Arrays], *, nudged: bool = False
    ) -> Conditioning:
        """Compare a framework's answers with its exact ones.

        Args:
            answers: in float32, for each sample.
            exact: in float64, for the same samples; or for nudged ones.
            nudged: which of both.
        """
        pairs = [
            pair
            for ours, theirs in zip(answers, exact, strict=True)
            for pair in zip(ours, theirs, strict=True)
        ]
        own_error = max(
            (_error(ours, theirs, _magnitude(theirs)) for ours, theirs in pairs), default=0.0
        )
        return cls(own_error=own_error, nudged=nudged)

    @property
    def tolerance(self) -> float:
        """The tolerance for ``compared``; never less than ``TOLERANCE``.

        A reference whose error is not a number gives no reason to accept more.
        """
        apart = _ROUNDINGS_APART * self.own_error
        return max(TOLERANCE, min(apart, ILL_CONDITIONED)) if np.isfinite(apart) else TOLERANCE

    def sentence(self, reference: str) -> str:
        """A sentence for the user if more than ``TOLERANCE`` is accepted."""
        apart = (
            f"the answers of {reference} change by {self.own_error:.1e} of the largest one with "
            f"inputs that change by {NUDGE:.0e}"
            if self.nudged
            else f"the answers of {reference} in float32 are off by {self.own_error:.1e} of the "
            "largest one in float64"
        )
        return (
            f"the network makes much of roundings: {apart}, so that {self.tolerance:.0e} is "
            "allowed here"
        )


@attrs.define(eq=False)
class Expected:
    """A framework's answers, and how far from them a network's may be.

    Args:
        samples: inputs.
        answers: the framework's in float32, for each sample.
        exact: the same in float64, or for nudged samples, asked for if it matters; None if
            nothing can.
        rounded: whether the network rounds to quantized numbers, so that samples are nudged.
    """

    _samples: Sequence[Arrays]
    _answers: Sequence[Arrays]
    _exact: Callable[[], Sequence[Arrays] | None]
    _rounded: bool = attrs.field(default=False, kw_only=True)
    conditioning: Conditioning | None = attrs.field(default=None, init=False)

    @property
    def tolerance(self) -> float:
        """The accepted error, as far as it is known by now."""
        least = QUANTIZED_TOLERANCE if self._rounded else TOLERANCE
        return least if self.conditioning is None else max(least, self.conditioning.tolerance)

    def verdict(self, run: Run) -> OutputCheck:
        """Compare a network's outputs; if they are off by little, with regard to rounding.

        Args:
            run: the network; what it raises is a verdict too.
        """
        check = compared(run, self._samples, self._answers, tolerance=self.tolerance)
        if not check.may_be_rounding or self.conditioning is not None:
            return check
        exact = self._exact()
        if exact is None:
            return check
        self.conditioning = Conditioning.of(self._answers, exact, nudged=self._rounded)
        return compared(run, self._samples, self._answers, tolerance=self.tolerance)


def nudged(inputs: Arrays) -> Arrays:
    """Inputs of which those that are no integers are changed by ``NUDGE``."""
    return [(x * (1 + NUDGE)).astype(x.dtype) if x.dtype.kind == "f" else x for x in inputs]


def magnitudes(answers: Sequence[Arrays]) -> tuple[float, ...]:
    """The largest finite magnitude of each output over all samples.

    Errors of reduced precision are relative to these. Ranges are those of all inputs, and if a
    network has few outputs, those of one sample may all be near zero.

    Args:
        answers: outputs for each sample.
    """
    return tuple(max(map(_magnitude, outputs)) for outputs in zip(*answers, strict=True))


def agreement(
    got: Arrays,
    wanted: Arrays,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] | None = None,
) -> OutputCheck:
    """Compare a network's outputs for one sample with the expected ones.

    Args:
        got: the network's.
        wanted: the reference's.
        tolerance: as for ``compared``.
        scales: what differences of each output are relative to; None for its largest magnitude
            in this sample.
    """
    if [array.shape for array in got] != [array.shape for array in wanted]:
        return OutputCheck(
            max_relative_error=None,
            problem=f"outputs have the shapes {[array.shape for array in got]} instead of "
            f"{[array.shape for array in wanted]}",
        )
    scales = tuple(map(_magnitude, wanted)) if scales is None else scales
    worst = max((_error(*three) for three in zip(got, wanted, scales, strict=True)), default=0.0)
    if worst <= tolerance:
        return OutputCheck(max_relative_error=worst)
    return OutputCheck(
        max_relative_error=worst if np.isfinite(worst) else None,
        problem=f"its outputs are off by {worst:.1e} of the largest one; at most "
        f"{tolerance:.0e} is allowed",
    )


def _magnitude(array: NDArray[Any]) -> float:
    """The largest finite magnitude of an array; 0 if it has none."""
    return float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0))


def _error(got: NDArray[Any], wanted: NDArray[Any], scale: float) -> float:
    """Largest difference over a scale, if that is not 0; infinite if numbers are missing.

    Equal infinities, such as those of a mask, are no difference.
    """
    apart = got != wanted
    ours, theirs = got[apart].astype(np.float64), wanted[apart].astype(np.float64)
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    if not np.isfinite(difference):
        return float("inf")
    return difference / scale if scale else difference


def guilty(keys: Sequence[str], fails: Callable[[frozenset[str]], bool]) -> list[str]:
    """The tasks whose kernels make a network fail, found by bisection.

    Args:
        keys: tasks that have a tuned kernel, with which the network fails.
        fails: whether the network fails with the tuned kernels of these tasks alone.

    Returns:
        One task; several if they fail only together; none if it fails without any.
    """
    if fails(frozenset()):
        return []
    suspects = list(keys)
    while len(suspects) > 1:
        middle = len(suspects) // 2
        halves = suspects[:middle], suspects[middle:]
        failing = next((half for half in halves if fails(frozenset(half))), None)
        if failing is None:
            return suspects
        suspects = failing
    return suspects
