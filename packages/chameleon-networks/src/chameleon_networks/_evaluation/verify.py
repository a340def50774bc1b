"""Compares a compiled network with its framework, and finds the kernel that causes a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import words
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
"""A framework's own outputs in half precision may be off by this many rounding errors of one
number. This is several times the error that was seen in networks of fifty layers."""

QUANTIZED_TOLERANCE = ROUNDINGS * 0.5 / 255
"""Largest accepted error of quantized networks, for uint8. A value nearly half-way between two
quantized numbers may round to either, with the order in which float32 sums are added."""

_FLOOR = 1e-3
"""Errors of small numbers are divided by this share of a tensor's scale at least."""

PERTURBATION = 2.0**-17
"""Relative change of the inputs of quantized networks: about the rounding error of a sum of a
thousand float32 products. It moves some of an image's numbers to the next quantization step."""

_CHANNEL_NUMBERS, _CHANNEL_FACTOR = 48, 8.0
"""Least numbers of a channel whose errors are compared alone. Errors there may be larger than the
framework's own rounding errors by this factor."""

DRAWS = 4
"""Number of draws of ``jittered`` for special inputs."""

_JITTER = 2.0**-22
"""Relative change of inputs that shows how much a network amplifies rounding errors."""

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
        """Cut the outputs to the part that belongs to the unpadded inputs."""
        parts = list(outputs)
        for number, axis, extent in self.cuts:
            parts[number] = parts[number][(slice(None),) * axis + (slice(extent),)]
        return parts

    def run(self, network: Run) -> Arrays:
        """Run a network on the inputs, and cut its outputs to the part for the unpadded inputs."""
        return self.cut(network(self.inputs))


@attrs.frozen(kw_only=True, eq=False)
class SpecialInputs:
    """Inputs of one inference that are not drawn at random.

    Attributes:
        label: A phrase for messages that names the inputs.
        inputs: One array for each input of the network.
        is_finite: Whether all numbers are finite.
        may_spread: Whether NaN may spread further than in the reference, which may ignore it.
        exact: The numbers of the outputs whose integers no rounding changes.
    """

    label: str
    inputs: Arrays
    is_finite: bool = True
    may_spread: bool = False
    exact: frozenset[int] = frozenset()


def samples_of(samples: Callable[[np.random.Generator], Arrays]) -> list[Arrays]:
    """Random inputs of ``SAMPLES`` inferences, the same ones in every process."""
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
    """Compare a network's outputs with the expected outputs."""
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
    """Compare the outputs of several inferences with those expected, up to the first problem."""
    worst = 0.0
    for got, wanted in zip(answers, expected, strict=True):
        check = compare_outputs(got, wanted, tolerance=tolerance, scales=scales)
        if check.max_relative_error is None or check.problem is not None:
            return check
        worst = max(worst, check.max_relative_error)
    return OutputCheck(max_relative_error=worst)


# Some networks amplify rounding: an attention with scores in the hundreds takes only the largest
# score, and rounding may make another one the largest. The error of a backward stable method is the
# condition number times the rounding (Higham, Accuracy and Stability of Numerical Algorithms,
# section 1.6). In a quantized network, rounding may move a number to the next step.
@attrs.frozen(kw_only=True)
class Conditioning:
    """How much a network amplifies rounding errors (Higham, Accuracy and Stability, section 1.6).

    Attributes:
        own_error: The largest |difference| over the largest |exact| of all samples.
        perturbed: Whether the framework's answers were compared with those for perturbed inputs.
        parts: The number of parts of the network that were compared with the framework's values.
            It is 0 unless outputs are further off than ``tolerance``.
        largest_error: The largest error of these parts.
    """

    own_error: float
    perturbed: bool = False
    parts: int = 0
    largest_error: float = 0.0

    @classmethod
    def of(
        cls, answers: Sequence[Arrays], exact: Sequence[Arrays], *, perturbed: bool = False
    ) -> Conditioning:
        """Compare outputs with those in float64, or for perturbed inputs if quantized."""
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
        """A multiple of ``own_error``, from ``TOLERANCE`` to ``LARGEST_TOLERANCE``."""
        apart = _ROUNDING_FACTOR * self.own_error
        return max(TOLERANCE, min(apart, LARGEST_TOLERANCE)) if np.isfinite(apart) else TOLERANCE

    @property
    def largest_tolerance(self) -> float:
        """The largest error of a network whose parts are right, a multiple of ``own_error``."""
        return _CHANNEL_FACTOR * self.own_error

    def sentence(self, reference: str) -> str:
        """A sentence for the user: why a larger error than ``TOLERANCE`` is accepted."""
        apart = (
            f"the answers of {reference} change by {self.own_error:.1e} of the largest one with "
            f"inputs that change by {PERTURBATION:.0e}"
            if self.perturbed
            else f"the answers of {reference} in float32 are off by {self.own_error:.1e} of the "
            "largest one in float64"
        )
        if self.parts:
            return (
                f"the network makes much of roundings: {apart}, so that each of {self.parts} parts "
                f"was compared with the values of {reference}, with errors of at most "
                f"{self.largest_error:.1e}"
            )
        return (
            f"the network makes much of roundings: {apart}, so that {self.tolerance:.0e} is "
            "allowed here"
        )


@attrs.define(eq=False)
class SpecialCheck:
    """Compares a network's outputs for special inputs with a framework's outputs.

    Attributes:
        special: The inputs.
        answers: The framework's outputs.
        others: Computes the outputs in other roundings: in float64, and for inputs that differ by a
            rounding error.
        wrong_output: The number of the first output that was wrong in the last comparison.
        lenient: Whether NaN may spread further in the network than in the framework, as it does in
            transformed convolutions.
    """

    special: SpecialInputs
    answers: Arrays
    _others: Callable[[Arrays], Sequence[Arrays]]
    lenient: bool = False
    wrong_output: int = attrs.field(default=0, init=False)
    _rounded: Sequence[Arrays] | None = attrs.field(default=None, init=False)

    def problem(self, run: Run, scales: Sequence[float], tolerance: float) -> str | None:
        """A sentence that says what is wrong, or None.

        Args:
            run: The network.
            scales: The largest magnitude of each output for random inputs.
            tolerance: The largest error that is allowed if the framework rounds little.
        """
        label = f"with {self.special.label} as inputs"
        try:
            got = run(self.special.inputs)
        except ChameleonError as error:
            return f"{label}, {error}"
        if [array.shape for array in got] != [array.shape for array in self.answers]:
            return f"{label}, its outputs have other shapes"
        if not self._wrong(got, scales, [self.answers], tolerance):
            return None
        if self._rounded is None:
            self._rounded = [self.answers, *self._others(self.special.inputs)]
        clause = self._wrong(got, scales, self._rounded, tolerance)
        return clause and f"{label}, {clause}"

    def _wrong(
        self, got: Arrays, scales: Sequence[float], right: Sequence[Arrays], tolerance: float
    ) -> str:
        """A clause about the first output that is wrong whichever of the right ones is taken."""
        for number, (ours, scale) in enumerate(zip(got, scales, strict=True)):
            self.wrong_output = number
            # Rounding may change how many elements an operator selects.
            theirs = [answers[number] for answers in right if answers[number].shape == ours.shape]
            if number in self.special.exact and (
                count := min(differing(ours, one) for one in theirs)
            ):
                return f"output {number} has {words.counted(count, 'wrong integer')} of {ours.size}"
            numbers = [np.isfinite(one) for one in theirs]
            finite, own = np.logical_and.reduce(numbers), np.isfinite(ours)
            lost = own & ~np.logical_or.reduce(numbers)
            appeared = finite & ~own
            if lost.any() or (appeared.any() and not self.lenient):
                kinds = ["numbers", "NaN or infinity"][:: 1 if lost.any() else -1]
                return f"output {number} has {' instead of '.join(kinds)}"
            both = finite & own
            first = theirs[0][both]
            floor = max(_magnitude(first), _FLOOR * scale)
            apart = max((_error(one[both], first, floor) for one in theirs[1:]), default=0.0)
            allowed = max(tolerance, _ROUNDING_FACTOR * apart)
            error = _error(ours[both], first, floor)
            if error > allowed and allowed <= LARGEST_TOLERANCE:
                return (
                    f"its outputs are off by {error:.1e} of the largest one; at most "
                    f"{allowed:.0e} is allowed"
                )
        return ""


@attrs.define(eq=False)
class Expected:
    """A framework's outputs, with a tolerance that grows with its own rounding errors.

    Attributes:
        samples: The inputs of each inference.
        answers: The framework's outputs for them.
        wrong: The inputs and the number of the output that the last verdict found wrong, or None.
    """

    samples: Sequence[Arrays]
    answers: Sequence[Arrays]
    _exact: Callable[[], Sequence[Arrays] | None]
    _rounded: bool = attrs.field(default=False, kw_only=True)
    _special: Sequence[SpecialCheck] = attrs.field(default=(), kw_only=True)
    _others: Sequence[Callable[[], Sequence[Arrays] | None]] | None = attrs.field(
        default=None, kw_only=True
    )
    _exact_outputs: frozenset[int] = attrs.field(default=frozenset(), kw_only=True)
    conditioning: Conditioning | None = attrs.field(default=None, init=False)
    wrong: tuple[Arrays, int] | None = attrs.field(default=None, init=False)

    @property
    def tolerance(self) -> float:
        """The largest accepted error, larger if the framework's own rounding is."""
        least = QUANTIZED_TOLERANCE if self._rounded else TOLERANCE
        return least if self.conditioning is None else max(least, self.conditioning.tolerance)

    @property
    def amplifies(self) -> bool:
        """Whether the framework's own rounding, measured if it is not known, is large."""
        if self.conditioning is None and (exact := self._exact()) is not None:
            self.conditioning = Conditioning.of(self.answers, exact, perturbed=self._rounded)
        return self.conditioning is not None and self.conditioning.tolerance > TOLERANCE

    @property
    def tolerance_of_parts(self) -> float:
        """The largest accepted error, which is larger if parts of the network were compared."""
        if self.conditioning is None or not self.conditioning.parts:
            return self.tolerance
        return max(self.tolerance, self.conditioning.largest_tolerance)

    def remark(self, reference: str) -> str | None:
        """A sentence for the user if the framework's own rounding was measured and is large."""
        if self.conditioning is None or not self.amplifies:
            return None
        return self.conditioning.sentence(reference)

    def verdict(self, run: Run) -> OutputCheck:
        """Compare a network's outputs, with the framework's rounding measured if needed."""
        self.wrong = None
        try:
            got = [run(inputs) for inputs in self.samples]
        except ChameleonError as error:
            return OutputCheck(max_relative_error=None, problem=str(error))
        check = compare_all(got, self.answers, tolerance=self.tolerance)
        if check.may_be_rounding and self.amplifies:
            check = compare_all(got, self.answers, tolerance=self.tolerance)
        if check.problem is not None:
            self.wrong = self._first_wrong(got)
            return check
        problem = self._other_integers(got) or self._problem_of_channels(got)
        return attrs.evolve(check, problem=problem or self._special_problem(run))

    def problem_beyond_rounding(self, run: Run) -> str | None:
        """A sentence about wrong integers or special inputs, whatever the errors of other outputs.

        Raises:
            ChameleonError: The network cannot be run.
        """
        got = [run(inputs) for inputs in self.samples]
        return self._other_integers(got) or self._special_problem(run)

    def _other_integers(self, got: Sequence[Arrays]) -> str | None:
        """A sentence about an output of exact integers that has other ones, or None."""
        for inputs, ours, theirs in zip(self.samples, got, self.answers, strict=True):
            for number in sorted(self._exact_outputs):
                if count := differing(ours[number], theirs[number]):
                    self.wrong = inputs, number
                    wrong = words.counted(count, "wrong integer")
                    return f"output {number} has {wrong} of {ours[number].size}"
        return None

    def _first_wrong(self, got: Sequence[Arrays]) -> tuple[Arrays, int] | None:
        """The inputs and the number of the first output that is off."""
        for inputs, *outputs in zip(self.samples, got, self.answers, strict=True):
            for number, (ours, theirs) in enumerate(zip(*outputs, strict=False)):
                if compare_outputs([ours], [theirs], tolerance=self.tolerance).problem:
                    return inputs, number
        return None

    def _special_problem(self, run: Run) -> str | None:
        """A sentence about the first special inputs for which the network is wrong, or None."""
        scales = magnitudes(self.answers)
        for one in self._special:
            problem = one.problem(run, scales, self.tolerance)
            if problem:
                self.wrong = one.special.inputs, one.wrong_output
                return problem
        return None

    def _problem_of_channels(self, got: Sequence[Arrays]) -> str | None:
        """A sentence about a channel whose errors are large beside its own numbers, or None."""
        if self._rounded or self._others is None:
            return None
        right: list[Sequence[Arrays]] = []
        problem = wrong_channel(got, self.answers, right, tolerance=self.tolerance)
        for other in self._others if problem else ():
            right += [] if (answers := other()) is None else [answers]
            problem = wrong_channel(got, self.answers, right, tolerance=self.tolerance)
            if problem is None:
                break
        return problem if right else None


def wrong_channel(
    got: Sequence[Arrays],
    wanted: Sequence[Arrays],
    others: Sequence[Sequence[Arrays]],
    *,
    tolerance: float,
) -> str | None:
    """A sentence about a channel with a large error, or None.

    A channel is one place of the second or of the last axis. It must have so many numbers that two
    right programs have about the same largest rounding error.

    Args:
        got: The network's outputs, for each sample.
        wanted: The framework's outputs.
        others: The framework's outputs in other roundings, for the same samples.
        tolerance: The largest error over the channel's largest number, which counts as ``_FLOOR``
            of the tensor's largest number at least.
    """
    for number in range(len(wanted[0]) if wanted else 0):
        if len({outputs[number].shape for each in (got, wanted, *others) for outputs in each}) > 1:
            continue  # each sample has channels of another size
        ours, theirs, *rest = (
            np.stack([outputs[number] for outputs in each]) for each in (got, wanted, *others)
        )
        for axis in {2, ours.ndim - 1}:
            # The first axis of the stack is that of samples, and the second one that of batches.
            count = ours.shape[axis] if 2 <= axis < ours.ndim else 1  # noqa: PLR2004
            if theirs.dtype.kind != "f" or count == 1 or ours.size // count < _CHANNEL_NUMBERS:
                continue
            scales = _maxima(theirs, axis)
            scales = np.maximum(scales, _FLOOR * scales.max())
            with np.errstate(invalid="ignore"):  # of equal infinities
                own = np.max([_maxima(one - theirs, axis) for one in rest], axis=0, initial=0.0)
                errors = _maxima(ours - theirs, axis)
            allowed = np.maximum(tolerance * scales, _CHANNEL_FACTOR * own)
            worst = int(np.argmax(errors - allowed))
            if errors[worst] > allowed[worst]:
                return (
                    f"channel {worst} (axis {axis - 1}) of output {number} is off by "
                    f"{errors[worst] / scales[worst]:.1e} of its largest number; at most "
                    f"{allowed[worst] / scales[worst]:.0e} is allowed"
                )
    return None


def _maxima(array: NDArray[Any], axis: int) -> NDArray[np.float64]:
    """The largest finite magnitude in each place of an axis; 0 without one."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    largest: NDArray[np.float64] = np.where(np.isfinite(rows), np.abs(rows), 0.0).max(axis=1)
    return largest


def differing(got: NDArray[Any], wanted: NDArray[Any]) -> int:
    """How many numbers of two arrays differ; all of the larger array if the shapes differ."""
    if got.shape != wanted.shape:
        return max(got.size, wanted.size)
    return int(np.count_nonzero(got != wanted))


def perturbed(inputs: Arrays) -> Arrays:
    """Inputs with their floating-point numbers multiplied by 1 + ``PERTURBATION``."""
    return [(x * (1 + PERTURBATION)).astype(x.dtype) if x.dtype.kind == "f" else x for x in inputs]


def jittered(inputs: Arrays, draw: int = 0) -> Arrays:
    """Inputs whose floating-point numbers differ by a few roundings of float32, up or down.

    Numbers that cancel each other may change alike in one draw, and show nothing.
    """
    rng = np.random.default_rng(draw)
    return [
        (x * (1 + _JITTER * rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype)
        if x.dtype.kind == "f"
        else x
        for x in inputs
    ]


def magnitudes(answers: Sequence[Arrays]) -> tuple[float, ...]:
    """The largest finite magnitude of each output over all samples; one may be near zero."""
    return tuple(max(map(_magnitude, outputs)) for outputs in zip(*answers, strict=True))


def compare_outputs(
    got: Arrays,
    wanted: Arrays,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] | None = None,
) -> OutputCheck:
    """Compare a network's outputs for one sample with the expected outputs."""
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
    """The largest |difference| over the scale; infinite if shapes or finiteness differ."""
    error = compare_outputs(got, expected, tolerance=float("inf"), scales=scales).max_relative_error
    return float("inf") if error is None else error


def are_finite(answers: Iterable[Arrays]) -> bool:
    """Whether outputs can be compared: all numbers are finite, or minus infinity as from a mask."""
    floats = (array for arrays in answers for array in arrays if array.dtype.kind == "f")
    return all((np.isfinite(array) | np.isneginf(array)).all() for array in floats)


def check_finite(framework: str, answers: Iterable[Arrays]) -> None:
    """Raise an error unless a network's outputs can be compared with a framework's answers."""
    if not are_finite(answers):
        raise ConfigError(
            f"{framework} computes NaN or infinity, so nothing can be checked against it",
            hint="Look for NaN among the weights, or for inputs that the network divides by.",
        )


def _magnitude(array: NDArray[Any]) -> float:
    """The largest finite magnitude of an array; 0 if it has none."""
    return float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0))


def _error(got: NDArray[Any], wanted: NDArray[Any], scale: float) -> float:
    """The largest difference over the scale; NaN or infinity in both is no difference."""
    if got.shape != wanted.shape:
        return float("inf")
    apart = (got != wanted) & ~(np.isnan(got) & np.isnan(wanted))
    ours, theirs = got[apart].astype(np.float64), wanted[apart].astype(np.float64)
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    if not np.isfinite(difference):
        return float("inf")
    return difference / scale if scale else difference


def find_failing(keys: Sequence[str], fails: Callable[[frozenset[str]], bool]) -> list[str]:
    """The tasks whose kernels, alone or together, make a network fail, by bisection."""
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
