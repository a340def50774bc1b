"""Compares a compiled network with its framework, and finds the kernel that causes a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError
from numpy.typing import NDArray

TOLERANCE = 1e-3
"""Largest accepted |difference| over the largest |expected|, in float32. It is a hundred times the
error that rounding causes in the built-in networks, and a hundredth of a wrong kernel's error."""

LARGEST_TOLERANCE = 1e-1
"""The largest tolerance for a network whose framework rounds by more than ``TOLERANCE``. With a
larger tolerance, a wrong kernel would go unnoticed."""

_ROUNDING_FACTOR = 2.0
"""Two right answers may lie on either side of the exact answer, each off by its own rounding."""

ROUNDINGS = 16
"""A framework's own answers in half precision may be off by this many roundings of one number:
several times the error that was seen in networks of fifty layers."""

QUANTIZED_TOLERANCE = ROUNDINGS * 0.5 / 255
"""Largest accepted error of quantized networks, for uint8. A value nearly half-way between two
quantized numbers may round to either, with the order in which float32 sums are added."""

PERTURBATION = 2.0**-17
"""Relative change of the inputs of quantized networks: about the rounding error of a sum of a
thousand float32 products, and enough to move some of an image's numbers to the next step."""

SAMPLES = 3
"""Number of random inputs for which outputs are compared."""

Run = Callable[[Arrays], Arrays]

Cut = tuple[int, int, int]
"""Number of an output, number of one of its axes, and the extent to keep along that axis."""


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """The inputs of one inference, with which a network is checked or calibrated.

    Attributes:
        inputs: One array for each input, with the shapes that the network is compiled for.
        cuts: If the inputs were padded, the parts of the outputs that belong to the unpadded
            inputs. Outputs that no cut names are kept whole.
    """

    inputs: Arrays
    cuts: tuple[Cut, ...] = ()

    def cut(self, outputs: Arrays) -> Arrays:
        """Cut the outputs to the part that belongs to the unpadded inputs.

        Args:
            outputs: The outputs of the network for ``inputs``.
        """
        parts = list(outputs)
        for number, axis, extent in self.cuts:
            parts[number] = parts[number][(slice(None),) * axis + (slice(extent),)]
        return parts

    def run(self, network: Run) -> Arrays:
        """Run a network on the inputs, and cut its outputs to the part for the unpadded inputs."""
        return self.cut(network(self.inputs))


def samples_of(samples: Callable[[np.random.Generator], Arrays]) -> list[Arrays]:
    """Random inputs of ``SAMPLES`` inferences, the same ones in every process.

    Args:
        samples: A function that draws the inputs of one inference, as a network's ``samples``.
    """
    rng = np.random.default_rng(0)
    return [samples(rng) for _ in range(SAMPLES)]


@attrs.frozen(kw_only=True)
class OutputCheck:
    """The result of a comparison of a network's outputs with the expected outputs.

    Attributes:
        max_relative_error: The largest error over all samples and outputs. None if nothing could be
            compared.
        problem: A sentence that says why the network must not be delivered. None if it may be.
    """

    max_relative_error: float | None
    problem: str | None = None

    @property
    def may_be_rounding(self) -> bool:
        """Whether outputs differ so little that the framework's own rounding may be the cause."""
        error = self.max_relative_error
        return self.problem is not None and error is not None and error <= LARGEST_TOLERANCE


def compare(
    run: Run,
    samples: Sequence[Arrays],
    expected: Sequence[Arrays],
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] | None = None,
) -> OutputCheck:
    """Compare a network's outputs with the expected outputs.

    Args:
        run: A function that runs the network. If the function raises an error, the error's message
            is the ``problem`` of the result.
        samples: The inputs of several inferences.
        expected: The reference's outputs for each of the ``samples``.
        tolerance: Largest accepted error: the largest |difference| of an output, divided by the
            output's scale.
        scales: The scale of each output, as for ``compare_all``.
    """
    try:
        return compare_all(map(run, samples), expected, tolerance=tolerance, scales=scales)
    except ChameleonError as error:
        return OutputCheck(max_relative_error=None, problem=str(error))


def compare_all(
    answers: Iterable[Arrays],
    expected: Sequence[Arrays],
    *,
    tolerance: float,
    scales: Sequence[float] | None = None,
) -> OutputCheck:
    """Compare the outputs of several inferences with the expected outputs.

    The comparison ends at the first inference with a problem.

    Args:
        answers: The outputs of each inference.
        expected: The expected outputs of each inference.
        tolerance: Largest accepted error: the largest |difference| of an output, divided by the
            output's scale.
        scales: The scale of each output. None means the largest |expected| of each output, for each
            sample on its own.
    """
    worst = 0.0
    for got, wanted in zip(answers, expected, strict=True):
        check = compare_outputs(got, wanted, tolerance=tolerance, scales=scales)
        if check.max_relative_error is None or check.problem is not None:
            return check
        worst = max(worst, check.max_relative_error)
    return OutputCheck(max_relative_error=worst)


@attrs.frozen(kw_only=True)
class Conditioning:
    """How much a network amplifies rounding errors, as the outputs of its framework show.

    The measure is the difference of the framework's answers in float32 from those in float64. Some
    networks amplify rounding. For example, an attention with scores in the hundreds takes only the
    largest score, and rounding may make another score the largest. (Higham, Accuracy and Stability
    of Numerical Algorithms, section 1.6: the error of a backward stable method is the problem's
    condition number times the rounding.) In a quantized network, rounding may move a number to the
    next step. The measure of such a network is how the answers change if the inputs are nudged:
    changed by about a rounding error.

    Attributes:
        own_error: The largest |difference| over the largest |exact| of all samples.
        nudged: Whether the framework's answers were compared with its answers for nudged inputs.
    """

    own_error: float
    perturbed: bool = False

    @classmethod
    def of(
        cls, answers: Sequence[Arrays], exact: Sequence[Arrays], *, perturbed: bool = False
    ) -> Conditioning:
        """Measure how much a network amplifies rounding, by two sets of outputs of one framework.

        A quantized network has no outputs in float64. For such a network, the second set contains
        the outputs for samples that were changed by about a rounding error (nudged samples).

        Args:
            answers: The outputs in float32, for each sample.
            exact: The outputs in float64 for the same samples, or the outputs for nudged samples.
            nudged: Whether ``exact`` holds the outputs for nudged samples.
        """
        pairs = [
            pair
            for ours, theirs in zip(answers, exact, strict=True)
            for pair in zip(ours, theirs, strict=True)
        ]
        own_error = max(
            (_error(ours, theirs, _magnitude(theirs)) for ours, theirs in pairs), default=0.0
        )
        return cls(own_error=own_error, perturbed=perturbed)

    @property
    def tolerance(self) -> float:
        """The largest accepted error of a network, given its framework's own rounding errors.

        It is a multiple of the framework's error, but at least ``TOLERANCE`` and at most
        ``LARGEST_TOLERANCE``. An error that is not finite says nothing about rounding, so the result
        is then ``TOLERANCE``.
        """
        apart = _ROUNDING_FACTOR * self.own_error
        return max(TOLERANCE, min(apart, LARGEST_TOLERANCE)) if np.isfinite(apart) else TOLERANCE

    def sentence(self, reference: str) -> str:
        """A sentence for the user: why a larger error than ``TOLERANCE`` is accepted.

        Args:
            reference: The name of the framework.
        """
        apart = (
            f"the answers of {reference} change by {self.own_error:.1e} of the largest one with "
            f"inputs that change by {PERTURBATION:.0e}"
            if self.perturbed
            else f"the answers of {reference} in float32 are off by {self.own_error:.1e} of the "
            "largest one in float64"
        )
        return (
            f"the network makes much of roundings: {apart}, so that {self.tolerance:.0e} is "
            "allowed here"
        )


@attrs.define(eq=False)
class Expected:
    """A framework's answers, to compare a network's outputs with them.

    The largest accepted error, ``tolerance``, grows if the framework's own rounding errors are
    large. The function ``exact`` serves to measure these.

    Args:
        samples: The inputs of several inferences.
        answers: The framework's answers in float32, for each sample.
        exact: A function that returns further answers of the framework, from which one sees how
            much the network amplifies rounding. These are the answers in float64. For a quantized
            network, they are the answers for samples changed by about a rounding error (nudged
            samples). The function returns None if nothing can compute the answers. It is called
            only if the outputs are off by so little that rounding may be the cause.
        rounded: Whether the network rounds to quantized numbers, so that ``exact`` returns answers
            for nudged samples.
    """

    _samples: Sequence[Arrays]
    _answers: Sequence[Arrays]
    _exact: Callable[[], Sequence[Arrays] | None]
    _rounded: bool = attrs.field(default=False, kw_only=True)
    conditioning: Conditioning | None = attrs.field(default=None, init=False)

    @property
    def tolerance(self) -> float:
        """The largest accepted error of a network's outputs.

        It grows if the framework's own rounding errors turn out to be large.
        """
        least = QUANTIZED_TOLERANCE if self._rounded else TOLERANCE
        return least if self.conditioning is None else max(least, self.conditioning.tolerance)

    def verdict(self, run: Run) -> OutputCheck:
        """Compare a network's outputs with the framework's answers.

        If the outputs are off by little, the framework's own rounding is measured, and a network
        that amplifies rounding gets a larger tolerance.

        Args:
            run: A function that runs the network. If it raises, the result has that problem.
        """
        check = compare(run, self._samples, self._answers, tolerance=self.tolerance)
        if not check.may_be_rounding or self.conditioning is not None:
            return check
        exact = self._exact()
        if exact is None:
            return check
        self.conditioning = Conditioning.of(self._answers, exact, perturbed=self._rounded)
        return compare(run, self._samples, self._answers, tolerance=self.tolerance)


def perturbed(inputs: Arrays) -> Arrays:
    """Inputs with their floating-point numbers multiplied by 1 + ``PERTURBATION``."""
    return [(x * (1 + PERTURBATION)).astype(x.dtype) if x.dtype.kind == "f" else x for x in inputs]


def magnitudes(answers: Sequence[Arrays]) -> tuple[float, ...]:
    """The largest finite magnitude of each output over all samples.

    Errors of reduced precision are divided by these magnitudes. The magnitudes of one sample would
    not do: if a network has few outputs, all of them may be near zero for that sample.

    Args:
        answers: The outputs for each sample.
    """
    return tuple(max(map(_magnitude, outputs)) for outputs in zip(*answers, strict=True))


def compare_outputs(
    got: Arrays,
    wanted: Arrays,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] | None = None,
) -> OutputCheck:
    """Compare a network's outputs for one sample with the expected outputs.

    Args:
        got: The network's outputs.
        wanted: The reference's outputs.
        tolerance: Largest accepted error, as for ``compare``.
        scales: The number that differences of each output are divided by. None means the largest
            magnitude of the output in this sample.
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


def relative_error(got: Arrays, expected: Arrays, scales: Sequence[float] | None = None) -> float:
    """The error of a network's outputs, for one sample.

    For each output, the largest |difference| is divided by a scale, and the result is the largest
    of these quotients. It is infinite if numbers are not finite, or if an output has another shape.

    Args:
        got: The outputs for one sample.
        expected: The outputs of the reference.
        scales: The scale of each output. None means the largest |expected| of each output.
    """
    error = compare_outputs(got, expected, tolerance=float("inf"), scales=scales).max_relative_error
    return float("inf") if error is None else error


def are_finite(answers: Iterable[Arrays]) -> bool:
    """Whether outputs can be compared: all numbers are finite, or minus infinity as from a mask.

    Args:
        answers: The outputs for each sample.
    """
    floats = (array for arrays in answers for array in arrays if array.dtype.kind == "f")
    return all((np.isfinite(array) | np.isneginf(array)).all() for array in floats)


def check_finite(framework: str, answers: Iterable[Arrays]) -> None:
    """Raise an error unless a network's outputs can be compared with a framework's answers.

    Args:
        framework: The name of the framework.
        answers: Its answers for each sample.

    Raises:
        ConfigError: An answer has NaN or plus infinity.
    """
    if not are_finite(answers):
        raise ConfigError(
            f"{framework} computes NaN or infinity, so nothing can be checked against it",
            hint="Look for NaN among the weights, or for inputs that the network divides by.",
        )


def _magnitude(array: NDArray[Any]) -> float:
    """The largest finite magnitude of an array; 0 if it has none."""
    return float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0))


def _error(got: NDArray[Any], wanted: NDArray[Any], scale: float) -> float:
    """The largest difference of two arrays, divided by a scale if the scale is not 0.

    Infinite if one array is not finite where the other is. Equal infinities, such as those of a
    mask, and NaN at the same place do not count as a difference.
    """
    apart = (got != wanted) & ~(np.isnan(got) & np.isnan(wanted))
    ours, theirs = got[apart].astype(np.float64), wanted[apart].astype(np.float64)
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    if not np.isfinite(difference):
        return float("inf")
    return difference / scale if scale else difference


def find_failing(keys: Sequence[str], fails: Callable[[frozenset[str]], bool]) -> list[str]:
    """Find the tasks whose tuned kernels make a network fail, by bisection.

    Args:
        keys: The tasks that have a tuned kernel. The network fails with all of these kernels.
        fails: A function that says whether the network fails if only some tasks have tuned kernels.

    Returns:
        One task, or several tasks whose kernels fail only together. Empty if the network fails
        without any tuned kernel.
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
