"""The outcome of a run: ``--json`` prints it, ``best.json`` has it, the last lines describe it."""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attr
import attrs
import cattrs

from chameleon_core._dtypes import FLOAT32
from chameleon_core._errors import ExitCode
from chameleon_core._loop.end.time_use import TimeUse
from chameleon_core._measurement import Spending
from chameleon_core._network_result import FORM, NetworkResult
from chameleon_core._pipeline.schema import Requirement
from chameleon_core._stages.disturbance import Disturbance
from chameleon_core._stages.jobs import TUNED
from chameleon_core._words import counted, in_ratio, in_seconds

_FLAGS = {"recorded", "predicted"}
"""Keys that are in JSON only if they are true."""


@attrs.frozen(kw_only=True)
class VariantResult:
    """One contender of a final comparison, with its time or its failure.

    Attributes:
        name: ``tuned`` or the baseline's name.
        variant: the variant of the baseline; empty for a tuned configuration.
        vendor: whether the contender is a vendor's kernel, which a user would otherwise call.
        seconds: the contender's median time in seconds, or None if the contender failed.
        failure: the reason why the contender failed, or None if it succeeded.
    """

    name: str
    variant: str = ""
    vendor: bool = False
    seconds: float | None = None
    failure: str | None = None

    @property
    def tuned(self) -> bool:
        """Whether the contender is a tuned configuration, and no baseline."""
        return self.name == TUNED


@attrs.frozen(kw_only=True)
class OperatorResult:
    """The outcome of one task. Times are in seconds, or None if they were not measured.

    Attributes:
        name: the task's name.
        task: the task as JSON values.
        space: the name of the plugin that made the design space.
        fingerprint: the fingerprint of the design space.
        config: knob indices of the winner, or None if no configuration succeeded.
        alternatives: other configurations that are nearly as fast, which may be tried in a network.
        best: the winner's knob values by name, or None if no configuration succeeded.
        search_seconds: the winner's time in the search; ``tuned_seconds`` is its time in the later
            comparison.
        max_relative_error: the largest relative error of the winner's outputs
            (``Measurement.max_relative_error``).
        guesses: further configurations, best first. If nothing was measured, a delivery uses the
            first of them that works. If the winner's measurement was copied from another run, they
            replace a winner that fails. Empty if this run itself measured the winner.
        recorded: whether the winner's measurement was copied from another run, and this run did not
            repeat it.
        predicted: whether nothing was measured, and ``guesses`` are in the order of a cost model
            that was trained beforehand.
        measurements: the number of measured configurations, failures included.
        origins: the number of configurations by the stage that proposed them
            (``Measurement.Origin``), if recorded.
        failed: the number of failures by kind.
        failure: the message of the first failure of the most frequent kind, or None if nothing
            failed.
        ended: the reason why the search ended, as a clause. None if the search has not ended, or if
            an earlier version of Chameleon did not record the reason.
        spending: the wall-clock time of the search, by part.
        variants: the contenders of the final comparison.
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
        """The lowest time of a contender in the final comparison, over all of its variants.

        It is in seconds, and None if the contender has no time.

        Args:
            name: the name of the contender: ``tuned`` or a baseline.
        """
        return _fastest(v.seconds for v in self.variants if v.name == name)

    @property
    def tuned_seconds(self) -> float | None:
        """The winner's time in the final comparison in seconds, or None without a time."""
        return self.seconds_of(TUNED)

    @property
    def untuned_seconds(self) -> float | None:
        """The time of the fastest baseline that is not a vendor's, in seconds, or None."""
        return _fastest(v.seconds for v in self.variants if not (v.tuned or v.vendor))

    @property
    def vendor_seconds(self) -> float | None:
        """The time of the fastest vendor's baseline in seconds, or None without a time."""
        return _fastest(v.seconds for v in self.variants if v.vendor)

    @property
    def ratio(self) -> float | None:
        """The vendor's kernel's time over the tuned kernel's: above 1, the tuned one is faster.

        The ratio is None if either time is missing.
        """
        tuned, vendor = self.tuned_seconds, self.vendor_seconds
        return vendor / tuned if tuned and vendor else None

    @property
    def gflops(self) -> float | None:
        """Speed of the tuned kernel in GFLOP/s, or None if its time is unknown."""
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
        """Read an operator's result from the output of ``to_json``."""
        return cattrs.structure({**value, "spending": value["spent_seconds"]}, cls)


def _fastest(seconds: Any) -> float | None:
    return min((value for value in seconds if value is not None), default=None)


@attrs.frozen(kw_only=True)
class RunResult:
    """The outcome of a run.

    Attributes:
        folder: the run folder.
        seconds: wall-clock time in seconds, summed over all processes of the run.
        operators: the results of the tasks.
        require: the pipeline's requirement, or None if it has none.
        network: the result of the network's delivery; empty if the model is no network.
        versions: versions of the distributions that took part, by name. A version is None if the
            distribution is not installed.
        disturbance: how much other work disturbed the timing, as far as the runner can tell.
        usage: a command or Python code with which the user can use the result
            (``Frontend.usage``). Empty if nothing in the run folder can be used on this
            machine.
        time_use: where the run's wall-clock time went; None if its budget has no ``wall_time``.
    """

    folder: Path
    seconds: float
    operators: tuple[OperatorResult, ...]
    require: Requirement | None = None
    network: NetworkResult = attrs.field(factory=NetworkResult)
    versions: Mapping[str, str | None] = attrs.field(factory=dict)
    disturbance: Disturbance = attrs.field(factory=Disturbance)
    usage: str = ""
    time_use: TimeUse | None = None

    @property
    def missed(self) -> list[str]:
        """The ways in which the run misses the pipeline's requirement, as messages.

        There is a message for each operator that misses it, and one for the network.
        """
        require, sentences = self.require, []
        if require is not None and require.network_ratio is not None:
            sentences += _network_missed(require.network_ratio, self.network)
        if require is not None and require.verified and not self.network.delivered:
            sentences.append("network: a verified one was asked for, but there is none")
        elif require is not None and require.verified and self.network.unverified is not None:
            sentences.append(f"network: {self.network.status}, since {self.network.unverified}")
        if require is None or require.min_ratio is None or require.against is None:
            return sentences
        asked = f"{require.min_ratio:g} times the speed of {require.against}"
        for operator in self.operators:
            other, tuned = operator.seconds_of(require.against), operator.tuned_seconds
            if not (other and tuned):
                sentences.append(f"{operator.name}: {asked} was asked for, but not both have times")
            elif other / tuned < require.min_ratio:
                sentences.append(f"{operator.name}: {other / tuned:.3f} instead of {asked}")
        return sentences

    @property
    def slower(self) -> str | None:
        """A message that the network is slower than its fastest rival; None if it is not."""
        best = {row.name: row.tuned_seconds or row.search_seconds for row in self.operators}
        return self.network.slower(best)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of ``chameleon run`` for this result."""
        # A verified network is a result even if kernels lack times. Without a network, all kernels
        # need one.
        kernels = self.operators and all(row.tuned_seconds is not None for row in self.operators)
        if self.network.failure is not None or not (self.network.delivered or kernels):
            return ExitCode.NO_VALID_RESULT
        return ExitCode.THRESHOLD_MISSED if self.missed else ExitCode.OK

    @property
    def summary_lines(self) -> list[str]:
        """Lines about the run's speed, the speed of rivals, the folder, and how to use the result.

        The list is empty if the run has no valid result.
        """
        timed = [operator for operator in self.operators if operator.tuned_seconds is not None]
        network = self.network
        if network.failure is not None or not (timed or network.delivered):
            return []
        if network.delivered:
            lines = _network_lines(network)
        else:
            lines = _operator_lines(timed, len(self.operators))
        usage = f"Use it: {self.usage_here}" if self.usage else ""
        late = [] if self.time_use is None else self.time_use.sentences
        return [*lines, *late, f"The result is in {_shown(self.folder)}. {usage}".rstrip()]

    @property
    def usage_here(self) -> str:
        """The command or Python code that uses the result, with the path of the run folder."""
        folder = _shown(self.folder)
        typed = shlex.quote(folder) if self.usage.startswith("chameleon ") else folder
        return self.usage.replace("{folder}", typed)

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
            **({} if self.time_use is None else {"time_use": self.time_use.to_json()}),
            **({"disturbance": self.disturbance.to_json()} if self.disturbance.summary else {}),
        }

    @classmethod
    def from_json(
        cls, value: Mapping[str, Any], *, folder: Path, require: Requirement | None = None
    ) -> RunResult:
        """Read a result from the output of ``to_json``.

        Args:
            value: the output of ``to_json``.
            folder: the run folder, which may have been moved since the result was written.
            require: the pipeline's requirement, or None.
        """
        return cls(
            folder=folder,
            seconds=value["seconds"],
            operators=tuple(OperatorResult.from_json(o) for o in value["operators"]),
            require=require,
            network=NetworkResult.from_json(value["network"]),
            versions=value.get("versions", {}),
            disturbance=Disturbance.from_json(value.get("disturbance", {})),
            usage=value.get("usage", ""),
            time_use=TimeUse.from_json(value.get("time_use")),
        )


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


_UNTIMED = "The network is delivered and verified, but not timed."


def _network_lines(network: NetworkResult) -> list[str]:
    doubts = []
    if network.unverified is not None:
        doubts.append(f"The network is {network.status}, since {network.unverified}.")
    slow = [] if network.unscheduled is None else [network.unscheduled]
    if network.latency_seconds is None:
        return [*doubts, *(["It is not timed."] if doubts else [_UNTIMED]), *slow]
    dtype = "" if network.precision == FLOAT32 else f", in {network.precision}"
    took = in_seconds(network.latency_seconds, FORM)
    lines = [*doubts, f"The network takes {took} for one inference{network.each}{dtype}."]
    rival, ratio = network.fastest_rival, network.ratio
    others = [
        f"{name} {in_seconds(seconds, FORM)}"
        for name, seconds in network.like_rivals.items()
        if seconds is not None and (rival is None or name != rival[0])
    ]
    if rival is not None and ratio is not None:
        fastest = f"{rival[0]} ({in_seconds(rival[1], FORM)}), the fastest other{network.among}"
        first = f"It is {network.ratio_text} times as fast as {fastest}"
        lines.append("; ".join(filter(None, [first, ", ".join(others)])) + ".")
        lines += filter(None, [network.doubt])
    elif network.untuned_seconds is not None:
        lines.append(f"Untuned, it takes {in_seconds(network.untuned_seconds, FORM)}.")
    return [*lines, *slow, *network.default_sentences]


def _operator_lines(timed: Sequence[OperatorResult], count: int) -> list[str]:
    total = in_seconds(sum(operator.tuned_seconds or 0.0 for operator in timed), FORM)
    if count == 1:
        lines = [f"{timed[0].name} takes {total}."]
    else:
        of = "" if len(timed) == count else f" of {count}"
        lines = [f"{counted(len(timed), 'operator')}{of} take {total} together."]
    variants = [variant for operator in timed for variant in operator.variants]
    vendors = [variant for variant in variants if variant.vendor]
    names = dict.fromkeys(variant.name for variant in vendors or variants)
    against = [words for name in names if (words := _against(name, timed)) is not None]
    subject = "It is" if count == 1 else "They are"
    return [*lines, f"{subject} {' and '.join(against)}."] if against else lines


def _against(name: str, timed: Sequence[OperatorResult]) -> str | None:
    """The speed relative to one baseline, over the operators for which the baseline has a time."""
    times = [operator.seconds_of(name) for operator in timed]
    pairs = [
        (theirs, operator.tuned_seconds)
        for theirs, operator in zip(times, timed, strict=True)
        if theirs and operator.tuned_seconds
    ]
    if not pairs or name == TUNED:
        return None
    ratios = [theirs / ours for theirs, ours in pairs]
    if len(timed) == 1:
        return f"{in_ratio(ratios[0])} times as fast as {name} ({in_seconds(pairs[0][0], FORM)})"
    span = f"{in_ratio(min(ratios))} to {in_ratio(max(ratios))}"
    mean = in_ratio(statistics.geometric_mean(ratios))
    return f"{mean} times as fast as {name} (geometric mean of {len(ratios)}, from {span})"


def _shown(folder: Path) -> str:
    """A folder's path as a user would type it: relative if it lies in the working folder."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith(os.pardir) else relative
