"""The outcome of a run, as ``run --json`` prints it and ``best.json`` keeps it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attr
import attrs
import cattrs

from chameleon_core.errors import ExitCode
from chameleon_core.measurement import Spending
from chameleon_core.network_result import InferenceResult, KernelTime, NetworkResult
from chameleon_core.pipeline.schema import Requirement
from chameleon_core.stages import Disturbance
from chameleon_core.stages.jobs import TUNED
from chameleon_core.words import in_seconds

_FLAGS = {"recorded", "predicted"}
"""Keys that are in JSON only if they are true."""


@attrs.frozen(kw_only=True)
class VariantResult:
    """One contender of a final comparison.

    Attributes:
        name: ``tuned`` or the baseline's name.
        variant: which way of computing; empty for a tuned configuration.
        vendor: whether it counts as what a user would otherwise call.
        seconds: its median in seconds, or None where it failed.
        failure: why it has no time, or None.
    """

    name: str
    variant: str = ""
    vendor: bool = False
    seconds: float | None = None
    failure: str | None = None


@attrs.frozen(kw_only=True)
class OperatorResult:
    """The outcome of one task. Times are in seconds, None where there is none.

    Attributes:
        name: the task's name.
        task: the task as JSON values.
        space: name of the space provider.
        fingerprint: the design space's.
        config: knob indices of the winner, or None where nothing succeeded.
        alternatives: other configurations nearly as fast; what else a network may be tried with.
        best: the winner decoded, or None.
        search_seconds: the winner's cost when it was found; ``tuned_seconds`` is the later,
            interleaved measurement.
        max_relative_error: of the winner's outputs (``Measurement.max_relative_error``).
        guesses: what else there is where the winner was not checked here, the best ones first.
        recorded: whether the winner was built, checked and timed in another run alone.
        predicted: whether nothing was measured and the first of ``guesses`` is what the cost model,
            trained beforehand, predicts to be best.
        measurements: configurations measured, failures included.
        origins: how many came from where (``loop.round.batch.Origin``), as far as recorded.
        failed: failures by kind.
        failure: the first failure of the most frequent kind in words, or None.
        ended: why it got no further batch, as a clause; None if an earlier version did
            not say.
        spending: where the wall-clock went.
        variants: the final comparison.
    """

    name: str
    task: Mapping[str, Any]
    space: str
    fingerprint: str
    config: tuple[int, ...] | None = None
    alternatives: tuple[tuple[int, ...], ...] = ()
    best: Mapping[str, Any] | None = None
    search_seconds: float | None = None
    max_relative_error: float | None = None
    guesses: tuple[tuple[int, ...], ...] = ()
    recorded: bool = False
    predicted: bool = False
    measurements: int = 0
    origins: Mapping[str, int] = attrs.field(factory=dict)
    failed: Mapping[str, int] = attrs.field(factory=dict)
    failure: str | None = None
    ended: str | None = None
    spending: Spending = attrs.field(factory=Spending)
    variants: tuple[VariantResult, ...] = ()

    def seconds_of(self, name: str) -> float | None:
        """The best time of a baseline, over its variants."""
        return _fastest(v.seconds for v in self.variants if v.name == name)

    @property
    def tuned_seconds(self) -> float | None:
        """The winner's time in the final comparison."""
        return self.seconds_of(TUNED)

    @property
    def untuned_seconds(self) -> float | None:
        """The fastest baseline that is no vendor's."""
        return _fastest(v.seconds for v in self.variants if v.name != TUNED and not v.vendor)

    @property
    def vendor_seconds(self) -> float | None:
        """The fastest of the vendors' baselines."""
        return _fastest(v.seconds for v in self.variants if v.vendor)

    @property
    def ratio(self) -> float | None:
        """Vendor's time over the tuned one: above 1 the tuned kernel is faster."""
        tuned, vendor = self.tuned_seconds, self.vendor_seconds
        return vendor / tuned if tuned and vendor else None

    @property
    def gflops(self) -> float | None:
        """Speed of the tuned kernel in GFLOP/s."""
        tuned = self.tuned_seconds
        return float(self.task["flop"]) / tuned / 1e9 if tuned else None

    def to_json(self) -> dict[str, Any]:
        """The operator's part of ``run --json``, which ``from_json`` reads."""
        values = attr.asdict(self, filter=lambda field, value: field.name not in _FLAGS or value)
        return {
            "name": self.name,
            "untuned_seconds": self.untuned_seconds,
            "tuned_seconds": self.tuned_seconds,
            "vendor_seconds": self.vendor_seconds,
            "ratio": self.ratio,
            "gflops": self.gflops,
            "wall_seconds": self.spending.total,
            "spent_seconds": values.pop("spending"),
            **values,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OperatorResult:
        """The inverse of ``to_json``."""
        return cattrs.structure({**value, "spending": value["spent_seconds"]}, cls)


def _fastest(seconds: Any) -> float | None:
    return min((value for value in seconds if value is not None), default=None)


@attrs.frozen(kw_only=True)
class RunResult:
    """The outcome of a run.

    Attributes:
        folder: the run folder.
        seconds: wall-clock of all its processes in seconds.
        operators: one per task.
        require: what the pipeline asks for, or None.
        network: what the frontend made of the winners; empty where the model is no network.
        versions: of the distributions that took part, None of those that are not installed.
        disturbance: what disturbed timing, as far as the runner knows.
        usage: a command or Python that uses the result, as ``PluginRecord.usage`` has it; empty if
            nothing in the folder can be used here.
    """

    folder: Path
    seconds: float
    operators: tuple[OperatorResult, ...]
    require: Requirement | None = None
    network: NetworkResult = attrs.field(factory=NetworkResult)
    versions: Mapping[str, str | None] = attrs.field(factory=dict)
    disturbance: Disturbance = attrs.field(factory=Disturbance)
    usage: str = ""

    @property
    def missed(self) -> list[str]:
        """A sentence for every operator that misses the pipeline's requirement, or the network."""
        return [] if self.require is None else missed(self.require, self.operators, self.network)

    @property
    def slower(self) -> str | None:
        """That the network is slower than what is installed, and why; None where it is not."""
        return slower(self.network, self.operators)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        # A verified network is a result, whatever kernels it has; without one they are.
        kernels = self.operators and all(row.tuned_seconds is not None for row in self.operators)
        if self.network.failure is not None or not (self.network.delivered or kernels):
            return ExitCode.NO_VALID_RESULT
        return ExitCode.THRESHOLD_MISSED if self.missed else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """The content of ``run --json``."""
        return {
            "run": str(self.folder),
            **({} if self.slower is None else {"slower": self.slower}),
            "seconds": self.seconds,
            "operators": [operator.to_json() for operator in self.operators],
            "network": self.network.to_json(),
            "versions": dict(self.versions),
            **({"usage": self.usage} if self.usage else {}),
            **({"disturbance": self.disturbance.to_json()} if self.disturbance.summary else {}),
        }

    @classmethod
    def from_json(
        cls, value: Mapping[str, Any], *, folder: Path, require: Requirement | None = None
    ) -> RunResult:
        """The inverse of ``to_json``; the folder may have been moved since."""
        return cls(
            folder=folder,
            seconds=value["seconds"],
            operators=tuple(OperatorResult.from_json(o) for o in value["operators"]),
            require=require,
            network=NetworkResult.from_json(value["network"]),
            versions=value.get("versions", {}),
            disturbance=Disturbance.from_json(value.get("disturbance", {})),
            usage=value.get("usage", ""),
        )


_NAMED = 3
"""Kernels that are named where a network is slow."""

_WORTH_NAMING = 0.02
"""A kernel with a smaller share of the network is not what makes it slow."""


def missed(
    require: Requirement, operators: Sequence[OperatorResult], network: NetworkResult
) -> list[str]:
    """A sentence for each operator that misses a requirement, and one for the network.

    Args:
        require: what was asked for.
        operators: the run's.
        network: what was made of them.
    """
    sentences = []
    if require.network_ratio is not None:
        sentences += _network_missed(require.network_ratio, network)
    if require.min_ratio is None or require.against is None:
        return sentences
    asked = f"{require.min_ratio:g} times the speed of {require.against}"
    for operator in operators:
        other, tuned = operator.seconds_of(require.against), operator.tuned_seconds
        if not (other and tuned):
            sentences.append(f"{operator.name}: {asked} was asked for, but not both have times")
        elif other / tuned < require.min_ratio:
            sentences.append(f"{operator.name}: {other / tuned:.3f} instead of {asked}")
    return sentences


def _network_missed(asked: float, network: NetworkResult) -> list[str]:
    words = f"{asked:g} times the speed of the fastest rival"
    if network.ratio is None:
        return [f"network: {words} was asked for, but it was compared with none"]
    if network.ratio < asked:
        return [f"network: {network.ratio:.3f} instead of {words}"]
    return [
        f"network, bucket {bucket.name}: {bucket.ratio:.3f} instead of {words}"
        for bucket in network.buckets
        if bucket.ratio is not None and bucket.ratio < asked
    ]


def slower(network: NetworkResult, operators: Sequence[OperatorResult]) -> str | None:
    """That a network is slower than the fastest of its rivals, by how much, and where the time is.

    Args:
        network: the network.
        operators: the run's, whose times alone stand beside those in the network.

    Returns:
        A sentence or two; None where nothing that was timed is faster.
    """
    text = _slower_than_fastest(network)
    if text is None:
        return _slower_buckets(network)
    largest = _largest(network, operators)
    return f"{text}. Most of its time goes to {'; '.join(largest)}" if largest else text


def _slower_buckets(network: NetworkResult) -> str | None:
    """In which buckets of shapes a network is slower, though in all of them together it is not."""
    sentences = (
        f"in bucket {bucket.name} {words}"
        for bucket in network.buckets
        if (words := _slower_than_fastest(bucket)) is not None
    )
    return "; ".join(sentences) or None


def _slower_than_fastest(result: InferenceResult) -> str | None:
    """That it is slower than its fastest rival; None if it is not."""
    rival, ratio = result.fastest_rival, result.ratio
    if rival is None or ratio is None or ratio >= 1.0:
        return None
    ours, theirs = in_seconds(result.latency_seconds), in_seconds(rival[1])
    words = f"the network is slower than {rival[0]}: {ours} against {theirs}"
    return f"{words}, {ratio:.2f} times its speed"


def _largest(network: NetworkResult, operators: Sequence[OperatorResult]) -> list[str]:
    """The largest kernels, those that nobody tuned first, with what each takes."""
    total = sum(kernel.seconds for kernel in network.kernels)
    unmeasured = {task.name for task in network.unmeasured}
    large = [kernel for kernel in network.kernels if kernel.seconds >= _WORTH_NAMING * total]
    ordered = sorted(
        large, key=lambda kernel: (kernel.tuned and kernel.name not in unmeasured, -kernel.seconds)
    )
    alone = {row.name: row.tuned_seconds or row.search_seconds for row in operators}
    return [_described(kernel, total, unmeasured, alone) for kernel in ordered[:_NAMED]]


def _described(
    kernel: KernelTime, total: float, unmeasured: Collection[str], alone: Mapping[str, float | None]
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
