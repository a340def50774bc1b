"""The network's result, and its rivals: like is held against like, no precisions are mixed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

import attr
import attrs
import cattrs

from chameleon_core.dtypes import FLOAT32


@attrs.frozen(kw_only=True)
class RivalTime:
    """One inference by something else.

    Attributes:
        asked: the precision that was asked of it; ``as-it-comes`` for the one it likes.
        precision: what it computes in, as it says.
        seconds: of one inference.
        max_relative_error: of its outputs against float32; None if it was not measured.
    """

    asked: str
    precision: str
    seconds: float
    max_relative_error: float | None = None


@attrs.frozen(kw_only=True)
class KernelTime:
    """A kernel of a network, and the time that it takes.

    Attributes:
        name: of the kernel; that of a tuned kernel is its task's.
        tuned: whether it is a task's.
        calls: in one inference.
        seconds: of all of them.
    """

    name: str
    tuned: bool
    calls: int
    seconds: float


@attrs.frozen(kw_only=True)
class Unmeasured:
    """An operator whose kernel in the network was never timed.

    Attributes:
        name: the task's.
        kernel: ``first guess``, ``configuration predicted to be best``, ``another guess`` or
            ``default schedule``.
        because: the reason.
    """

    name: str
    kernel: str
    because: str


@attrs.frozen(kw_only=True)
class FrontPoint:
    """Types that there were to choose.

    Attributes:
        types: how many operators are in each.
        seconds: of the operators as measured alone.
        error: of the outputs as simulated.
        delivered: whether the network is delivered so.
        bucket: name of its bucket; None if there is one shape.
    """

    types: Mapping[str, int]
    seconds: float
    error: float
    delivered: bool
    bucket: str | None = None


@attrs.frozen(kw_only=True)
class Footprint:
    """Memory, time and disk that a process with a network takes, None if that is not known.

    Attributes:
        memory_bytes: of the process.
        first_answer_seconds: from the start of a new process to its first answer.
        disk_bytes: of the files that loading needs.
    """

    memory_bytes: int | None = None
    first_answer_seconds: float | None = None
    disk_bytes: int | None = None


@attrs.frozen(kw_only=True)
class LayoutResult:
    """The layout of the images in a network.

    Attributes:
        summary: the layout and what speaks for it, as a sentence.
        layout: its name; empty if buckets have different ones.
        reason: why.
        seconds: by layout, of all occurrences of the measured convolutions in one inference.
        measured: distinct convolutions that were measured.
        share: of the work of the network's convolutions that these do.
        wall_seconds: that the choice took.
        buckets: the layout of each bucket by name; empty if there is one shape.
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
class OwnPrecision:
    """A network in half precision against its framework's answers in that.

    Attributes:
        dtype: the precision.
        reference: the framework; None if it cannot run the network, and nothing was compared.
        tolerance: the largest error that is allowed.
        max_relative_error: of its outputs.
        problem: why the network is not delivered, or None.
    """

    dtype: str
    reference: str | None = None
    tolerance: float | None = None
    max_relative_error: float | None = None
    problem: str | None = None


@attrs.frozen(kw_only=True)
class InferenceResult:
    """One inference, and whatever else runs the same. Times are in seconds.

    Attributes:
        latency_seconds: of the compiled network, or None if it was not timed.
        untuned_seconds: of the network as compiled without a tuner, or None.
        rivals: of whatever else runs it here, as its framework has the network.
        rivals_precision: what those of them compute in that do not in float32, by name.
        rivals_reduced: whatever else runs it in another precision, by name, with what was
            ``asked`` of it, the ``precision`` that it says, ``seconds`` and
            ``max_relative_error``.
        precision: what it computes in, in words.
        precisions: the types of ``precision`` without what it computes in without being asked.
        max_relative_error: of its outputs, or None if nothing was compiled.
        reference: what its outputs were compared with.
        conditioning: that the reference's own rounding is large, as a sentence, or None.
        own_precision: how it agrees with a framework in half precision; None for other networks.
    """

    latency_seconds: float | None = None
    untuned_seconds: float | None = None
    rivals: Mapping[str, float] = attrs.field(factory=dict)
    rivals_precision: Mapping[str, str] = attrs.field(factory=dict)
    rivals_reduced: Mapping[str, RivalTime] = attrs.field(factory=dict)
    precision: str = FLOAT32
    precisions: tuple[str, ...] = (FLOAT32,)
    max_relative_error: float | None = None
    reference: str | None = None
    conditioning: str | None = None
    own_precision: OwnPrecision | None = None

    @property
    def like_rivals(self) -> Mapping[str, float]:
        """Seconds of the rivals in its own precision; of those in float32 without any."""
        reduced = self.rivals_reduced.items()
        like = {name: time.seconds for name, time in reduced if time.asked in self.precisions}
        return like or self.rivals

    @property
    def fastest_rival(self) -> tuple[str, float] | None:
        """Name and seconds of the fastest rival that it is held against; None without any."""
        return min(self.like_rivals.items(), key=lambda pair: pair[1], default=None)

    @property
    def ratio(self) -> float | None:
        """The time of the fastest rival in the same precision over ours: below 1 it is faster."""
        rival = self.fastest_rival
        return rival[1] / self.latency_seconds if rival and self.latency_seconds else None

    def to_json(self) -> dict[str, Any]:
        """The object that ``run --json`` prints, without most of the keys that have no value."""
        # That of `attrs` keeps tuples, which JSON has not.
        return {**attr.asdict(self, filter=_told), "ratio": self.ratio}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json``; keys that it does not know are left out."""
        return cattrs.structure(_with_precisions(value), cls)


@attrs.frozen(kw_only=True)
class BucketResult(InferenceResult):
    """A network in one of its buckets of shapes.

    Attributes:
        name: of the bucket.
        shapes: of its inputs, by name.
        seconds: wall-clock that compiling and verifying it took.
        layout: of the images in it.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    seconds: float = 0.0
    layout: str = ""


@attrs.frozen(kw_only=True)
class NetworkResult(InferenceResult):
    """The network that the tasks are parts of, compiled. Times are in seconds.

    Attributes:
        precision_summary: why it computes in its ``precision``; empty if there was no choice.
        front: the types that there were to choose among, by falling seconds; of all buckets.
        delivered_seconds: wall-clock from the start of the run until the verified network was in
            its folder, before comparisons began; None if none was delivered.
        delivery_seconds: wall-clock of each step of that after the operators were compared.
        kernels: where its time goes, the slowest first; empty if that is not known.
        unmeasured: operators whose kernel in it was never timed.
        left_out: reasons why it was not compared with other runtimes, by their names.
        footprint: what its process takes (``network``), and those of its rivals, by name.
        layout: of the images in it; None if the frontend says none.
        buckets: of a network that was compiled for several shapes each of them. Times and kernels
            of the network are sums then: of one inference in each bucket. Empty if there is one
            shape.
        folder: where the compiled network is, or None if none was delivered.
        failure: why none was delivered, as a sentence, or None.
    """

    precision_summary: str = ""
    front: tuple[FrontPoint, ...] = ()
    delivered_seconds: float | None = None
    delivery_seconds: Mapping[str, float] = attrs.field(factory=dict)
    kernels: tuple[KernelTime, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    footprint: Mapping[str, Footprint] = attrs.field(factory=dict)
    layout: LayoutResult | None = None
    buckets: tuple[BucketResult, ...] = ()
    folder: str | None = None
    failure: str | None = None

    @property
    def delivered(self) -> bool:
        """Whether a verified network is in its folder."""
        return self.folder is not None and self.failure is None

    def to_json(self) -> dict[str, Any]:
        """The same, with its precision only if that was chosen or is not float32."""
        values = super().to_json() | {"buckets": [bucket.to_json() for bucket in self.buckets]}
        plain = self.precision == FLOAT32 and not self.precision_summary
        absent = {"precision": plain, "precisions": plain, "buckets": not self.buckets}
        absent["ratio"] = self.ratio is None
        return {name: value for name, value in values.items() if not absent.get(name)}


_ALWAYS = {"latency_seconds", "untuned_seconds", "rivals", "max_relative_error"}
"""Keys that results have always had, null or empty if there is nothing."""


def _told(attribute: attrs.Attribute[Any], value: Any) -> bool:
    """Whether a key is in JSON."""
    return attribute.name in _ALWAYS or value not in (None, "", (), {})


def _with_precisions(value: Mapping[str, Any]) -> dict[str, Any]:
    """A result as JSON; folders of earlier versions say precisions in words alone."""
    words = value.get("precision", FLOAT32).partition(", the rest")[0]
    buckets = [_with_precisions(bucket) for bucket in value.get("buckets", ())]
    return {"precisions": re.findall(r"\b(?!and\b)\w+", words), **value, "buckets": buckets}


@attrs.frozen(kw_only=True)
class OperatorCoverage:
    """An operator of a model, and whether it can be compiled.

    Attributes:
        name: of the operator.
        occurrences: in the model.
        assumed: how many of these nothing is known of but the operator's name.
        missing: why it cannot be compiled, each reason with a sentence about what would do.
    """

    name: str
    occurrences: int
    assumed: int = 0
    missing: Mapping[str, str] = attrs.field(factory=dict)
