"""The outcome of a run, as ``run --json`` prints it and ``best.json`` keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.errors import ExitCode
from chameleon_core.loop.end.rivals import FLOAT32, like_rivals
from chameleon_core.loop.end.shortfalls import missed, slower
from chameleon_core.loop.end.variants import TUNED, VariantResult
from chameleon_core.pipeline.schema import Requirement
from chameleon_core.stages import Disturbance
from chameleon_core.store import Spending


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
        ended: why it got no further batch, as half a sentence; None where an earlier version did
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
        """What ``run --json`` prints of an operator, and what ``from_json`` needs."""
        return {
            "name": self.name,
            "untuned_seconds": self.untuned_seconds,
            "tuned_seconds": self.tuned_seconds,
            "vendor_seconds": self.vendor_seconds,
            "ratio": self.ratio,
            "gflops": self.gflops,
            "measurements": self.measurements,
            "origins": dict(self.origins),
            "failed": dict(self.failed),
            "failure": self.failure,
            "ended": self.ended,
            "wall_seconds": self.spending.total,
            "spent_seconds": attrs.asdict(self.spending),
            "search_seconds": self.search_seconds,
            "max_relative_error": self.max_relative_error,
            "config": None if self.config is None else list(self.config),
            "alternatives": [list(config) for config in self.alternatives],
            "guesses": [list(config) for config in self.guesses],
            **({"recorded": True} if self.recorded else {}),
            **({"predicted": True} if self.predicted else {}),
            "best": None if self.best is None else dict(self.best),
            "space": self.space,
            "fingerprint": self.fingerprint,
            "task": dict(self.task),
            "variants": [attrs.asdict(variant) for variant in self.variants],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OperatorResult:
        """The inverse of ``to_json``."""
        config, spent = value["config"], value["spent_seconds"]
        # Folders of earlier versions do not have all of them.
        same = {name: value[name] for name in attrs.fields_dict(cls) if name in value}
        made = {
            "config": None if config is None else tuple(config),
            "alternatives": tuple(tuple(one) for one in value.get("alternatives", ())),
            "guesses": tuple(tuple(one) for one in value.get("guesses", ())),
            "variants": tuple(VariantResult(**variant) for variant in value["variants"]),
        }
        return cls(**{**same, **made, "spending": Spending(**spent)})


@attrs.frozen(kw_only=True)
class NetworkResult:
    """What became of the network that the tasks are parts of. Times are in seconds.

    Attributes:
        latency_seconds: one inference of the compiled network, or None where it was not timed.
        untuned_seconds: one inference as compiled without a tuner, or None.
        rivals: one inference by whatever else runs it here, as its framework has the network.
        rivals_precision: what those of them compute in that do not in float32, by name; known
            where there are ``rivals_reduced``.
        precision: what it computes in, in words.
        precision_summary: why in that; empty where there was nothing to choose.
        front: the types that there were to choose among, a row each, by falling ``seconds`` (of
            the operators as measured alone): ``types``, how many operators are in each,
            ``error`` of the outputs as simulated, and whether that is ``delivered``; where there
            are buckets those of each, with its name under ``bucket``.
        rivals_reduced: whatever else runs it in reduced precision or in the one it takes by
            itself, by name: ``asked``, the precision that was asked of it, ``precision``, what it
            computes in as it says, ``seconds``, and ``max_relative_error`` against float32.
        max_relative_error: of its outputs, or None where nothing was compiled.
        delivered_seconds: wall-clock from the start of the run until the verified network was in
            its folder, before anything was compared with it; None where none was delivered.
        delivery_seconds: wall-clock of each step of that after the operators were compared.
        kernels: where its time goes, the slowest first, each with ``name``, ``tuned``, ``calls``
            in one inference and ``seconds`` of all of them; empty where that is not known.
        unmeasured: operators whose kernel in it was never timed, each with ``name``, ``kernel``
            (``first guess``, ``configuration predicted to be best``, ``another guess`` or
            ``default schedule``) and ``because``.
        left_out: why it was not compared with what else may run it, half a sentence by name.
        footprint: ``memory_bytes`` of its process (``network``) and of its rivals', by name; its
            own has ``first_answer_seconds`` of a new process and ``disk_bytes``, too.
        layout: of the images in it, and its ``summary`` why; empty where the frontend says none.
        buckets: of a network that was compiled for several shapes a row for each, with ``name``,
            ``shapes`` of inputs by name, ``latency_seconds``, ``untuned_seconds``, ``rivals``,
            ``ratio`` and ``max_relative_error`` as here, ``precision`` where there were types to
            choose among, and ``seconds``, wall-clock that compiling and verifying it took. Times
            and kernels of the network are sums then: of one inference in each bucket. Empty where
            there is one shape.
        folder: where the compiled network is, or None where none was delivered.
        failure: why none was delivered, as a sentence, or None.
    """

    latency_seconds: float | None = None
    untuned_seconds: float | None = None
    rivals: Mapping[str, float] = attrs.field(factory=dict)
    rivals_precision: Mapping[str, str] = attrs.field(factory=dict)
    precision: str = FLOAT32
    precision_summary: str = ""
    front: Sequence[Mapping[str, Any]] = ()
    rivals_reduced: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    max_relative_error: float | None = None
    delivered_seconds: float | None = None
    delivery_seconds: Mapping[str, float] = attrs.field(factory=dict)
    kernels: Sequence[Mapping[str, Any]] = ()
    unmeasured: Sequence[Mapping[str, str]] = ()
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    footprint: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)
    layout: Mapping[str, Any] = attrs.field(factory=dict)
    buckets: Sequence[Mapping[str, Any]] = ()
    folder: str | None = None
    failure: str | None = None

    @property
    def ratio(self) -> float | None:
        """The time of the fastest rival in the same precision over ours: below 1 it is faster."""
        fastest = _fastest(self.like_rivals.values())
        return fastest / self.latency_seconds if fastest and self.latency_seconds else None

    @property
    def like_rivals(self) -> Mapping[str, float]:
        """Seconds of the rivals that it is held against; see ``rivals.like_rivals``."""
        return like_rivals(self.precision, self.rivals, self.rivals_reduced)

    @property
    def delivered(self) -> bool:
        """Whether a verified network is in its folder."""
        return self.folder is not None and self.failure is None

    def to_json(self) -> dict[str, Any]:
        """What ``run --json`` prints of the network; without the places of what there is not."""
        values = {**attrs.asdict(self), "kernels": [dict(kernel) for kernel in self.kernels]}
        values["unmeasured"] = [dict(one) for one in self.unmeasured]
        values["buckets"] = [dict(one) for one in self.buckets]
        values["front"] = [dict(one) for one in self.front]
        values["ratio"] = self.ratio
        if self.precision == FLOAT32:
            del values["precision"]
        optional = {"folder", "failure", "kernels", "layout", "delivered_seconds"}
        optional |= {"unmeasured", "left_out", "ratio", "buckets", "rivals_reduced"}
        optional |= {
            "rivals_precision",
            "precision_summary",
            "front",
            "delivery_seconds",
            "footprint",
        }
        return {k: v for k, v in values.items() if k not in optional or v}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NetworkResult:
        """The inverse of ``to_json``; what a frontend says beyond it is left out."""
        known = attrs.fields_dict(cls)
        return cls(**{name: one for name, one in value.items() if name in known})


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
    """

    folder: Path
    seconds: float
    operators: tuple[OperatorResult, ...]
    require: Requirement | None = None
    network: NetworkResult = attrs.field(factory=NetworkResult)
    versions: Mapping[str, str | None] = attrs.field(factory=dict)
    disturbance: Disturbance = attrs.field(factory=Disturbance)

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
        """What the command ends with."""
        # A verified network is a result, whatever kernels it has; without one they are.
        kernels = self.operators and all(one.tuned_seconds is not None for one in self.operators)
        if self.network.failure is not None or not (self.network.delivered or kernels):
            return ExitCode.NO_VALID_RESULT
        return ExitCode.THRESHOLD_MISSED if self.missed else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """What ``run --json`` prints."""
        return {
            "run": str(self.folder),
            **({} if self.slower is None else {"slower": self.slower}),
            "seconds": self.seconds,
            "operators": [operator.to_json() for operator in self.operators],
            "network": self.network.to_json(),
            "versions": dict(self.versions),
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
        )


def _fastest(seconds: Any) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
