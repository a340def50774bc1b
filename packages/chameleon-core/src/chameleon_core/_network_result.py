"""The result of a network, compared with rivals that compute in the same precision."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import attr
import attrs
import cattrs

from chameleon_core._dtypes import FLOAT32
from chameleon_core._words import counted, in_ratio, in_seconds

_NAMED = 3
"""Number of kernels that the message about a slow network names."""

_WORTH_NAMING = 0.02
"""Smallest share of the network's time for which the message names a kernel."""

FORM = "#.3g"
"""Format of times: timings are accurate to three digits at best."""


@attrs.frozen(kw_only=True)
class InferenceResult:
    """One inference of a network, and of the rivals that run it. Times are in seconds.

    Attributes:
        latency_seconds: the time of the compiled network, or None if it was not timed.
        untuned_seconds: the time of the network as compiled without a tuner, or None if it was not
            timed.
        rivals: the time of each rival (another framework) by name, for the network in its original
            precision.
        ratio_interval: the ends of the 95 % bootstrap interval of ``ratio`` over the turns of the
            comparison; empty if there were too few turns.
        rivals_precision: the dtype in which a rival of ``rivals`` computes, by its name. Rivals
            that compute in float32 are left out.
        rivals_reduced: the times, dtypes and errors of rivals in other precisions, by name.
        precision: a description of the dtypes in which the network computes.
        precisions: the reduced dtypes that were chosen for some operators, such as ``int8``. The
            network's own dtype is not among them.
        max_relative_error: the error of the network's outputs, or None if nothing was compiled.
        reference: the framework with whose outputs the network's were compared.
        reference_day: the day on which an earlier run had the framework compute these outputs, as
            ``2026-11-25``; None if this run did.
        unverified: the reason why no other implementation can check the outputs, so that they were
            only compared with those of the same network without tuning. None if one did.
        disagreement: a sentence about another implementation that is wrong, as ``reference`` shows;
            None if there is none.
        conditioning: a warning that the reference's own rounding errors are large. None if they are
            small.
        own_precision: the comparison with a framework in half precision; None if the network is not
            in half precision.
    """

    @attrs.frozen(kw_only=True)
    class Rival:
        """The time of one inference by a rival: another framework or runtime.

        Attributes:
            asked: the precision that Chameleon requested from the rival; ``AS_IT_COMES`` for the
                rival's default precision.
            precision: the precision that the rival reports.
            seconds: the time of one inference in seconds.
            max_relative_error: the error of the rival's outputs against those in float32; None if
                the error was not measured.
        """

        AS_IT_COMES: ClassVar = "as-it-comes"
        """The precision that a framework itself chooses if it is asked for none."""

        asked: str
        precision: str
        seconds: float
        max_relative_error: float | None = None

    @attrs.frozen(kw_only=True)
    class OwnPrecision:
        """The comparison of a half-precision network with its framework in the same precision.

        Attributes:
            dtype: the half-precision dtype of the network's own tensors, such as ``float16``.
            reference: the framework; None if it cannot run the network, so that nothing was
                compared.
            tolerance: the largest allowed error of the outputs; None if nothing was compared.
            max_relative_error: the error of the network's outputs; None if nothing was compared.
            problem: the reason why the network is not delivered, or None if it may be delivered.
        """

        dtype: str
        reference: str | None = None
        tolerance: float | None = None
        max_relative_error: float | None = None
        problem: str | None = None

    latency_seconds: float | None = None
    untuned_seconds: float | None = None
    rivals: Mapping[str, float] = attrs.field(factory=dict)
    ratio_interval: tuple[float, ...] = ()
    rivals_precision: Mapping[str, str] = attrs.field(factory=dict)
    rivals_reduced: Mapping[str, Rival] = attrs.field(factory=dict)
    precision: str = FLOAT32
    precisions: tuple[str, ...] = (FLOAT32,)
    max_relative_error: float | None = None
    reference: str | None = None
    reference_day: str | None = None
    unverified: str | None = None
    disagreement: str | None = None
    conditioning: str | None = None
    own_precision: OwnPrecision | None = None

    @property
    def like_rivals(self) -> Mapping[str, float]:
        """The time of each rival in the network's own precision, in seconds.

        If no rival was measured in this precision, the times are those of the rivals that run the
        network in its original precision.
        """
        reduced = self.rivals_reduced.items()
        like = {name: time.seconds for name, time in reduced if time.asked in self.precisions}
        return like or self.rivals

    @property
    def fastest_rival(self) -> tuple[str, float] | None:
        """The name and the seconds of the fastest rival in the network's precision, or None."""
        return min(self.like_rivals.items(), key=lambda pair: pair[1], default=None)

    @property
    def rivals_by_default(self) -> Mapping[str, Rival]:
        """The rivals that by default compute in a reduced dtype that the network lacks, by name."""
        return {
            name: rival
            for name, rival in self.rivals_reduced.items()
            if rival.asked == rival.AS_IT_COMES
            and rival.precision not in (FLOAT32, *self.precisions)
        }

    @property
    def rival_rows(self) -> list[tuple[str, Rival]]:
        """All rivals by name, with their times, sorted for a table.

        First come rivals that were asked to compute in the network's precision, then all other
        rivals. In both groups, rivals that in fact computed in float32 come first, and faster
        rivals come before slower ones.
        """
        times = dict(self.rivals_reduced)
        for name, seconds in self.rivals.items():
            precision = self.rivals_precision.get(name, FLOAT32)
            times[name] = self.Rival(asked=precision, precision=precision, seconds=seconds)

        def rank(row: tuple[str, InferenceResult.Rival]) -> tuple[bool, bool, float]:
            return row[1].asked not in self.precisions, row[1].precision != FLOAT32, row[1].seconds

        return sorted(times.items(), key=rank)

    @property
    def ratio(self) -> float | None:
        """The fastest rival's time divided by the network's: above 1, the network is faster.

        The ratio is None if either was not timed.
        """
        rival = self.fastest_rival
        return rival[1] / self.latency_seconds if rival and self.latency_seconds else None

    @property
    def ratio_text(self) -> str:
        """The ratio with its interval, such as ``1.60 (1.05 to 1.71)``; empty without a ratio."""
        if self.ratio is None:
            return ""
        ends = " to ".join(map(in_ratio, self.ratio_interval))
        return f"{in_ratio(self.ratio)} ({ends})" if ends else in_ratio(self.ratio)

    @property
    def doubt(self) -> str | None:
        """A sentence that the machine was busy; None if the turns of the comparison agree."""
        if not self.ratio_interval or self.ratio_interval[1] < _BUSY * self.ratio_interval[0]:
            return None
        return "The machine was busy while the networks were timed, so the ratio is uncertain."

    @property
    def among(self) -> str:
        """The words ``in float32`` after a space, for the dtype of the rivals of ``ratio``.

        Empty if no rival computes in another dtype by default.
        """
        if self.fastest_rival is None or not self.rivals_by_default:
            return ""
        name, _ = self.fastest_rival
        reduced = self.rivals_reduced.get(name)
        return f" in {reduced.asked if reduced else self.rivals_precision.get(name, FLOAT32)}"

    @property
    def default_sentences(self) -> list[str]:
        """Sentences about rivals that by default compute in a dtype that the network lacks.

        They name the line of a pipeline with which Chameleon uses this dtype.
        """
        sentences = []
        for name, rival in self.rivals_by_default.items():
            error = rival.max_relative_error
            accuracy = "" if error is None else f", with a largest relative error of {error:.1e}"
            took = f"{in_seconds(rival.seconds, FORM)}{accuracy}"
            line = f"`precision: {rival.precision}`"
            sentences += [
                f"{name}, with its default settings, computes in {rival.precision}: {took}.",
                f"To ask Chameleon for the same, write {line} in the pipeline.",
            ]
        return sentences

    @property
    def slower_than_rival(self) -> str | None:
        """A message that the network is slower than its fastest rival; None if it is not."""
        rival, ratio = self.fastest_rival, self.ratio
        if rival is None or ratio is None or ratio >= 1.0:
            return None
        ours, theirs = in_seconds(self.latency_seconds), in_seconds(rival[1])
        words = f"the network is slower than {rival[0]}: {ours} against {theirs}"
        return f"{words}, {ratio:.2f} times its speed"

    def to_json(self) -> dict[str, Any]:
        """The JSON object that ``chameleon run --json`` prints.

        Keys without a value are left out, except ``ratio``, ``latency_seconds``,
        ``untuned_seconds``, ``rivals`` and ``max_relative_error``.
        """
        # `attrs.asdict` keeps tuples, but `attr.asdict` makes lists, as in JSON.
        return {**attr.asdict(self, filter=_told), "ratio": self.ratio}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a result from the output of ``to_json``; unknown keys are ignored."""
        return cattrs.structure(_with_precisions(value), cls)


@attrs.frozen(kw_only=True)
class NetworkResult(InferenceResult):
    """The result of the compiled network that the tasks belong to. Times are in seconds.

    Attributes:
        precision_summary: the reason for the network's ``precision``; empty if there was no choice.
        score: what the pipeline's ``precision.metric`` returned for the network; None without one.
        score_in_float32: what it returned for the network in float32.
        front: the choices of dtypes that no other choice beats in both time and error, slowest
            first. It holds the choices of all buckets.
        delivered_seconds: the wall-clock time from the start of the run until its folder held the
            verified network, before comparisons began. None if no network was delivered.
        delivery_seconds: the wall-clock time of each step of the delivery, by its name.
        kernels: the times of the network's kernels, slowest first; empty if they are not known.
        unmeasured: the operators whose kernel in the network was never timed.
        left_out: for each rival runtime that the network was not compared with, the reason, by the
            runtime's name.
        footprint: memory, time and disk space of the network's process (under ``network``), and of
            its rivals, by name.
        layout: the layout of the images in the network; None if the frontend reports no layout.
        vectors: the number of kernels with a substitute for systems that refuse a permission such
            as AMX, or the reason why there is none. None if the network needs no
            permission.
        levels: how the network's kernels for further levels of CPUs were checked; None if it has
            none.
        buckets: the result of each bucket, if the network was compiled for several buckets of
            shapes; otherwise empty. With buckets, times and kernels of the network are sums over
            one inference in each bucket.
        folder: the folder of the compiled network, or None if no network was delivered.
        failure: the reason why no network was delivered, as a sentence, or None.
    """

    @attrs.frozen(kw_only=True)
    class Kernel:
        """A kernel of a network, and the time that it takes.

        Attributes:
            name: the kernel's name. A tuned kernel has the name of its task.
            tuned: whether the kernel belongs to a task.
            calls: the number of calls in one inference.
            seconds: the time of all these calls together, in seconds.
        """

        name: str
        tuned: bool
        calls: int
        seconds: float

    @attrs.frozen(kw_only=True)
    class Unmeasured:
        """An operator whose kernel in the network was never timed.

        Attributes:
            name: the name of the operator's task.
            kernel: how the kernel was chosen: ``first guess``, ``configuration predicted to be
                best``, ``next guess`` or ``default schedule``.
            because: the reason why the kernel was not timed.
        """

        name: str
        kernel: str
        because: str

    DEFAULT_SCHEDULE: ClassVar[str] = "default schedule"

    @attrs.frozen(kw_only=True)
    class FrontPoint:
        """One choice of a dtype for each operator of a network, with its time and error.

        Attributes:
            types: the number of operators in each dtype, by dtype.
            seconds: the sum of the operators' times in seconds, as measured in networks, or
                separately if networks could not be profiled. It includes an estimate for
                conversions between dtypes.
            error: the error of the network's outputs, from a simulation of these dtypes.
            delivered: whether the delivered network has these dtypes.
            bucket: the name of the bucket (the input shapes that the network is compiled for); None
                if the network has a single shape.
        """

        types: Mapping[str, int]
        seconds: float
        error: float
        delivered: bool
        bucket: str | None = None

    @attrs.frozen(kw_only=True)
    class Footprint:
        """Memory, time and disk space of a process that runs a network. Unknown values are None.

        Attributes:
            memory_bytes: the memory of the process, in bytes.
            first_answer_seconds: the time from the start of a new process to its first answer, in
                seconds.
            disk_bytes: the size of the files that loading needs, in bytes.
        """

        memory_bytes: int | None = None
        first_answer_seconds: float | None = None
        disk_bytes: int | None = None

    @attrs.frozen(kw_only=True)
    class Layout:
        """The layout of the images in a network, and the reason for its choice.

        Attributes:
            summary: the layout and the reason for it, as a sentence.
            layout: the layout's name; empty if buckets have different layouts.
            reason: the reason for the choice.
            seconds: for each layout, the time of all occurrences of the measured convolutions in
                one inference, in seconds.
            measured: the number of distinct convolutions that were measured.
            share: the share of the measured convolutions in the work of all convolutions, from 0 to
                1.
            wall_seconds: the wall-clock time of the choice, in seconds.
            buckets: the layout of each bucket of shapes, by its name; empty if the network has a
                single shape.
        """

        summary: str
        layout: str = ""
        reason: str = ""
        seconds: Mapping[str, float] = attrs.field(factory=dict)
        measured: int = 0
        share: float = 0.0
        wall_seconds: float = 0.0
        buckets: Mapping[str, str] = attrs.field(factory=dict)

    @attrs.frozen(kw_only=True)
    class Bucket(InferenceResult):
        """The result of a network for one of its buckets of shapes.

        Attributes:
            name: the name of the bucket.
            shapes: the shape of each input in this bucket, by the input's name.
            seconds: the wall-clock time of compiling and verifying the bucket, in seconds.
            layout: the layout of the images in the bucket.
        """

        name: str
        shapes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
        seconds: float = 0.0
        layout: str = ""

        @classmethod
        def of(cls, result: InferenceResult, **facts: Any) -> Self:
            """The result of a bucket, with the times and errors of another result.

            Args:
                result: the result of the network that was compiled for the bucket.
                facts: the bucket's own attributes.
            """
            shared = {name: getattr(result, name) for name in attrs.fields_dict(InferenceResult)}
            return cls(**shared, **facts)

    @attrs.frozen(kw_only=True)
    class OperatorCoverage:
        """An operator of a model, and whether Chameleon can compile it.

        Attributes:
            name: the operator's name.
            occurrences: the number of occurrences in the model.
            assumed: the number of occurrences for which only the operator's name could be checked,
                because its arguments are unknown.
            missing: the reasons why the operator cannot be compiled, each with a sentence about the
                next step.
        """

        name: str
        occurrences: int
        assumed: int = 0
        missing: Mapping[str, str] = attrs.field(factory=dict)

    TIME_IS_OVER: ClassVar[str] = "the budget's wall-clock time was over"
    """The reason in ``left_out`` for rivals that were not begun in time."""

    precision_summary: str = ""
    score: float | None = None
    score_in_float32: float | None = None
    front: tuple[FrontPoint, ...] = ()
    delivered_seconds: float | None = None
    delivery_seconds: Mapping[str, float] = attrs.field(factory=dict)
    kernels: tuple[Kernel, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    footprint: Mapping[str, Footprint] = attrs.field(factory=dict)
    layout: Layout | None = None
    vectors: str | None = None
    levels: str | None = None
    buckets: tuple[Bucket, ...] = ()
    folder: str | None = None
    failure: str | None = None

    @property
    def late(self) -> tuple[str, ...]:
        """The names of all that was left out because the time was over."""
        return tuple(name for name, why in self.left_out.items() if self.TIME_IS_OVER in why)

    @property
    def among(self) -> str:
        """See ``InferenceResult``; it also says that there was no time for all rivals."""
        return super().among + (" that there was time for" if self.late else "")

    @property
    def each(self) -> str:
        """Words after "one inference" that say of what shapes; empty if there is one shape."""
        if any(bucket.latency_seconds is None for bucket in self.buckets):
            return " of each size that was timed"
        return " in each bucket" if self.buckets else ""

    @property
    def delivered(self) -> bool:
        """Whether the folder holds a network that passed the comparison with its reference."""
        return self.folder is not None and self.failure is None

    @property
    def status(self) -> str:
        """``verified``, or ``delivered, not verified`` if no other implementation checked it."""
        return "verified" if self.unverified is None else "delivered, not verified"

    @property
    def unscheduled(self) -> str | None:
        """A sentence about operators that run with TVM's default schedules; None without any."""
        tasks = [task for task in self.unmeasured if task.kernel == self.DEFAULT_SCHEDULE]
        if not tasks:
            return None
        runs = "runs" if len(tasks) == 1 else "run"
        return (
            f"{counted(len(tasks), 'operator')} {runs} with TVM's default schedule, which may be "
            f"many times slower: {tasks[0].because}."
        )

    def slower(self, alone: Mapping[str, float | None] | None = None) -> str | None:
        """A message that the network is slower than its fastest rival, and in which kernels.

        Args:
            alone: the best time of each operator outside the network in seconds, by its name. The
                times are part of the message.

        Returns:
            The message, or None if no timed rival is faster.
        """
        text = self.slower_than_rival
        if text is not None:
            largest = _largest(self, alone or {})
            return f"{text}. Most of its time goes to {'; '.join(largest)}" if largest else text
        sentences = (
            f"in bucket {bucket.name} {words}"
            for bucket in self.buckets
            if (words := bucket.slower_than_rival) is not None
        )
        return "; ".join(sentences) or None

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values, without keys whose value is empty, such as ``buckets``.

        If the network is in float32 and no precision was chosen for it, the keys about precision
        are left out.
        """
        values = super().to_json() | {"buckets": [bucket.to_json() for bucket in self.buckets]}
        plain = self.precision == FLOAT32 and not self.precision_summary
        absent = {"precision": plain, "precisions": plain, "buckets": not self.buckets}
        absent["ratio"] = self.ratio is None
        return {name: value for name, value in values.items() if not absent.get(name)}


def _largest(network: NetworkResult, alone: Mapping[str, float | None]) -> list[str]:
    """Descriptions of the kernels with the largest times, kernels that were not tuned first."""
    total = sum(kernel.seconds for kernel in network.kernels)
    unmeasured = {task.name for task in network.unmeasured}
    large = [kernel for kernel in network.kernels if kernel.seconds >= _WORTH_NAMING * total]
    ordered = sorted(
        large, key=lambda kernel: (kernel.tuned and kernel.name not in unmeasured, -kernel.seconds)
    )
    return [_described(kernel, total, unmeasured, alone) for kernel in ordered[:_NAMED]]


def _described(
    kernel: NetworkResult.Kernel,
    total: float,
    unmeasured: Collection[str],
    alone: Mapping[str, float | None],
) -> str:
    name, seconds = kernel.name, kernel.seconds
    share = f"{in_seconds(seconds)} ({seconds / total:.0%})"
    if name in unmeasured:
        return f"{name}, never measured, {share}"
    if not kernel.tuned:
        return f"{name}, not tuned, {share}"
    best = alone.get(name)
    beside = "" if best is None else f", {in_seconds(best * kernel.calls)} alone"
    return f"{name}, {share}{beside}"


_BUSY = 1.25
"""The upper end of a ratio's interval over its lower end, from which on the machine was busy."""

_ALWAYS = {"latency_seconds", "untuned_seconds", "rivals", "max_relative_error"}
"""Keys that are always in the JSON of a result, null or empty if they have no value."""


def _told(attribute: attrs.Attribute[Any], value: Any) -> bool:
    """Whether a key is in JSON: it always is, or its value is not empty."""
    return attribute.name in _ALWAYS or value not in (None, "", (), {})


def _with_precisions(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add ``precisions`` to a result of an earlier version, which has only their description."""
    words = value.get("precision", FLOAT32).partition(", the rest")[0]
    buckets = [_with_precisions(bucket) for bucket in value.get("buckets", ())]
    return {"precisions": re.findall(r"\b(?!and\b)\w+", words), **value, "buckets": buckets}
