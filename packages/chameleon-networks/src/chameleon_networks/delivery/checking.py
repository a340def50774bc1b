"""Checks a network before tuning, in a child process.

If a compiler crashes, only this child process ends, and the run can go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import cattrs
from chameleon_core.errors import ChameleonError, ConfigError, TargetError
from chameleon_tvm.words import WAY_OUT

from chameleon_networks.compile.loop_tasks import CostlyFunction
from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.processes import Examiner

Facts = dict[str, Any]
"""Facts about a network in a run folder, as JSON values."""


@attrs.frozen(kw_only=True)
class CheckReport:
    """The result of compiling and checking a network before anything is tuned.

    Attributes:
        layout: The first layout that the network can be compiled in.
        max_relative_error: The error of the network's outputs. None if there is no reference, or if
            the target is another CPU.
        reference: The framework that the outputs were compared with, or None.
        conditioning: A sentence that says why a larger error than usual is accepted: the
            framework's own rounding errors are large. None if the usual limit holds.
        refused: The problem with each layout that was tried before ``layout``.
        reference_seconds: Seconds of one inference with the framework.
        unscheduled: Kernels that no schedule fits, by name, with their share of the network's time.
            Only large shares are listed.
        loops: Functions that are worth tuning although they are no matrix products.
        step_seconds: Wall-clock seconds of each step of the check, by name.
        day: The day on which an earlier run made the report, as ``2026-11-25``; None for this run.
    """

    layout: str
    max_relative_error: float | None = None
    reference: str | None = None
    conditioning: str | None = None
    refused: Mapping[str, str] = attrs.field(factory=dict)
    reference_seconds: float | None = None
    unscheduled: Mapping[str, float] = attrs.field(factory=dict)
    loops: tuple[CostlyFunction, ...] = ()
    step_seconds: Mapping[str, float] = attrs.field(factory=dict)
    day: str | None = None

    @property
    def summary(self) -> str:
        """The report as one sentence."""
        agrees = (
            "it compiles"
            if self.max_relative_error is None
            else f"it compiles, and agrees with {self.reference} "
            f"(error {self.max_relative_error:.0e})"
        )
        return "; ".join(
            [
                f"{agrees} in {self.layout}",
                *([self.conditioning] if self.conditioning else []),
                *([f"as an earlier run saw on {self.day}"] if self.day else []),
                *(f"not in {layout}: {problem}" for layout, problem in self.refused.items()),
            ]
        )

    def to_json(self) -> Facts:
        """The report as JSON values, with its summary."""
        return {**attrs.asdict(self), "summary": self.summary}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckReport:
        """Make a report from the result of ``to_json``."""
        return cattrs.structure(value, cls)


def tried(
    network: ImportedNetwork,
    layouts: Sequence[str],
    target: str,
    threads: int,
    examiner: Examiner | None = None,
) -> CheckReport:
    """Find out in a child process whether a network can be delivered, and in which layout.

    Args:
        network: The imported network.
        layouts: The layouts to try, in order. If the compiler crashes, the first layout counts as
            failed, and the other layouts are tried in a new process.
        target: The resolved target.
        threads: Number of threads that the framework computes with.
        examiner: A process that already imports the network, or None.

    Raises:
        ConfigError: The network cannot be delivered. The message says why.
        TargetError: Networks cannot be compiled for the target.
    """
    crashed: dict[str, str] = {}
    for first, layout in enumerate(layouts):
        try:
            with examiner or Examiner(network, threads) as process:
                report = _report(process, network, layouts[first:], target)
        except (ConfigError, TargetError):
            raise
        except ChameleonError as error:  # the compiler crashed, or did not end in time
            crashed[layout], examiner = str(error), None
        else:
            return attrs.evolve(report, refused={**crashed, **report.refused})
    raise ConfigError(
        "the network cannot be compiled: "
        + "; ".join(f"in {layout} {what}" for layout, what in crashed.items()),
        hint=WAY_OUT,
    )


def _report(
    examiner: Examiner, network: ImportedNetwork, layouts: Sequence[str], target: str
) -> CheckReport:
    """Wait for the report, and repeat each step here that the process did without a crash."""
    for answer in examiner.steps(layouts, target):
        if answer.get("done") == "import":
            network.programs = answer.get("programs", network.programs)
            _ = network.imported
        elif "done" in answer:
            prepared_network(network, answer["layout"])
    return CheckReport.from_json(answer)
