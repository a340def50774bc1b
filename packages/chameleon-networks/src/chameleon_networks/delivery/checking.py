"""Checks a network before tuning, in a child process.

If a compiler crashes, only this child process ends, and the run can go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import structlog
from chameleon_core.errors import ChameleonError, ConfigError, TargetError
from chameleon_system.processes.conversation import Message
from chameleon_tvm.words import WAY_OUT

from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.delivery.check_report import CheckReport
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.processes import AskedProcess
from chameleon_networks.running.requests import request_of

log = structlog.get_logger()

_MODULE = "chameleon_networks.delivery.examine"
_LIMIT_SECONDS = 600.0
"""Limit for the check. The network may have gigabytes, and the machine may be busy."""


def tried(
    network: ImportedNetwork, layouts: Sequence[str], target: str, threads: int
) -> CheckReport:
    """Find out in a child process whether a network can be delivered, and in which layout.

    Args:
        network: The imported network.
        layouts: The layouts to try, in order. If the compiler crashes, the first layout counts as
            failed, and the other layouts are tried in a new process.
        target: The resolved target.
        threads: Number of threads that the framework computes with.

    Raises:
        ConfigError: The network cannot be delivered. The message says why.
        TargetError: Networks cannot be compiled for the target.
    """
    crashed: dict[str, str] = {}
    for first, layout in enumerate(layouts):
        try:
            report = _asked(network, layouts[first:], target, threads)
        except (ConfigError, TargetError):
            raise
        except ChameleonError as error:  # the compiler crashed, or did not end in time
            crashed[layout] = str(error)
        else:
            return attrs.evolve(report, refused={**crashed, **report.refused})
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
    with _Examiner("the compiler", None, module=_MODULE, threads=threads, **options) as child:
        # If it can keep the network's graph, torch is not needed here. Otherwise it imports what it
        # needs while torch exports the network here, once for all.
        described = request_of(network, reads=network.kept is not None and not network.programs)
        request = {"layouts": list(layouts), "target": target, "threads": threads}
        return child.report(network, {**request, "started": started, **described})


class _Examiner(AskedProcess):
    """A process that compiles and checks a network, step by step."""

    def report(self, network: ImportedNetwork, request: Message) -> CheckReport:
        """Wait for the report, and repeat each step here that the process did without a crash."""
        # The process removes nothing itself: it ends without finalisers, or in a crash.
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
