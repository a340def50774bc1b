"""The outcome of a run, as ``run --json`` prints it and ``best.json`` keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.errors import ExitCode
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.loop.end.shortfalls import missed, slower
from chameleon_core.network_result import NetworkResult
from chameleon_core.pipeline.schema import Requirement
from chameleon_core.stages import Disturbance


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
