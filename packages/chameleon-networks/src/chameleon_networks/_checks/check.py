"""Checks a network before tuning, in a child process.

If a compiler crashes, only this child process ends, and the run can go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import cattrs
import structlog
from chameleon_core.plugin_api import ChameleonError, ConfigError, TargetError
from chameleon_system.api import Message
from chameleon_tvm.api import WAY_OUT

from chameleon_networks._compile.loop_tasks import CostlyFunction
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._evaluation.messages import describe_network
from chameleon_networks._evaluation.processes import WorkerProcess
from chameleon_networks._importers.imported_network import ImportedNetwork

log = structlog.get_logger()

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
        cancellations: For layers in which large products cancel, the ``cancellation`` and
            ``detail_cancellation`` (``FusedSpec``) by the digest of their weights.
        loops: Functions that are worth tuning although they are no matrix products.
        step_seconds: Wall-clock seconds of each step of the check, by name.
        crashed: Whether some layouts were refused because the child process ended without a report,
            as if the system kills it for want of memory.
        day: The day on which an earlier run made the report, as ``2026-11-25``; None for this run.
    """

    layout: str
    max_relative_error: float | None = None
    reference: str | None = None
    conditioning: str | None = None
    refused: Mapping[str, str] = attrs.field(factory=dict)
    reference_seconds: float | None = None
    unscheduled: Mapping[str, float] = attrs.field(factory=dict)
    cancellations: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    loops: tuple[CostlyFunction, ...] = ()
    step_seconds: Mapping[str, float] = attrs.field(factory=dict)
    crashed: bool = False
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


_MODULE = "chameleon_networks._checks.worker"
_LIMIT_SECONDS = 600.0
"""Limit for the check. The network may have gigabytes, and the machine may be busy."""


def tried(
    network: ImportedNetwork, layouts: Sequence[str], target: str, threads: int
) -> CheckReport:
    """Find out in a child process whether a network can be delivered, and in which layout."""
    crashed: dict[str, str] = {}
    for first, layout in enumerate(layouts):
        try:
            report = _asked(network, layouts[first:], target, threads)
        except (ConfigError, TargetError):
            raise
        except ChameleonError as error:  # the compiler crashed, or did not end in time
            crashed[layout] = str(error)
        else:
            refused = {**crashed, **report.refused}
            return attrs.evolve(report, refused=refused, crashed=bool(crashed))
    raise ConfigError(
        "the network cannot be compiled: "
        + "; ".join(f"in {layout} {what}" for layout, what in crashed.items()),
        hint=WAY_OUT,
    )


def _asked(
    network: ImportedNetwork, layouts: Sequence[str], target: str, threads: int
) -> CheckReport:
    """Start a child process that checks the network, and return its report."""
    options: Mapping[str, Any] = {"preloads": network.preloads, "wait": False}
    started = time.monotonic()
    with _CheckProcess("the compiler", None, module=_MODULE, threads=threads, **options) as child:
        # If the graph can be cached, the child process reads the network, and this process needs no
        # torch. Otherwise the child imports its modules while torch exports the network here.
        described = describe_network(
            network, reads=network.kept is not None and not network.programs
        )
        request = {"layouts": list(layouts), "target": target, "threads": threads}
        return child.report(network, {**request, "started": started, **described})


class _CheckProcess(WorkerProcess):
    """A process that compiles and checks a network, step by step."""

    def report(self, network: ImportedNetwork, request: Message) -> CheckReport:
        """Wait for the report, and repeat each step here that the process did without a crash."""
        # The child process removes no files, because it ends without finalisers or crashes.
        try:
            self._tell({**request, "scratch": self._folder.name})
            while "done" in (answer := self._answer(_LIMIT_SECONDS)):
                if answer["done"] == "import":
                    network.programs = answer.get("programs", network.programs)
                    _ = network.imported
                else:
                    prepared_network(network, answer["layout"])
        finally:
            log.debug("network_examined", log=self._child.log)
        return CheckReport.from_json(answer)
