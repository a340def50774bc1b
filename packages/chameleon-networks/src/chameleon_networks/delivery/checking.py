"""Checks a network before tuning, in a child process.

If a compiler crashes, only this child process ends, and the run can go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import structlog
from chameleon_core.errors import ConfigError, TargetError
from chameleon_system.processes.child import status_words
from chameleon_system.processes.conversation import ChildEndedError, Conversation, Message
from chameleon_system.processes.stamps import temporary_folder
from chameleon_tvm.words import WAY_OUT

from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.delivery.check_report import CheckReport
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.processes import DYING_SECONDS, network_child
from chameleon_networks.running.requests import request_of

log = structlog.get_logger()

_MODULE = "chameleon_networks.delivery.examine"
_LIMIT_SECONDS = 600.0
"""Limit for the check. The network may have gigabytes, and the machine may be busy."""


class _CrashedError(Exception):
    """The compiler crashed and ended its process. The message says how."""


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
        except _CrashedError as error:
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
    """Start a child process that checks the network, and return its report.

    Raises:
        _CrashedError: The compiler crashed or did not end in time.
    """
    request = {
        "layouts": list(layouts),
        "target": target,
        "threads": threads,
        "started": time.monotonic(),
    }
    # The child removes nothing itself: it ends without finalisers, or in a crash.
    scratch = temporary_folder()
    with scratch as folder, network_child(_MODULE, network.preloads) as child:
        conversation = Conversation(child)
        answer: Message = {}
        try:
            # If it can keep the network's graph, torch is not needed here. Otherwise it imports
            # what it needs while torch exports the network here, once for all.
            reads = network.kept is not None and not network.programs
            described = request_of(network, reads=reads)
            conversation.tell({**request, "scratch": folder, **described})
            while "done" in (answer := conversation.answer(_LIMIT_SECONDS)):
                _repeat(network, answer)
        except TimeoutError as error:
            problem = f"the compiler was not done after {_LIMIT_SECONDS:.0f} s"
            raise _CrashedError(problem) from error
        except ChildEndedError as error:
            how = status_words(child.reap(DYING_SECONDS))
            raise _CrashedError(f"the compiler ended with {how}") from error
        finally:
            log.debug("network_examined", steps=answer.get("step_seconds"), log=child.log)
    if "problem" in answer:
        kind = TargetError if answer.get("target") else ConfigError
        raise kind(answer["problem"], hint=answer["hint"])
    return CheckReport.from_json(answer)


def _repeat(network: ImportedNetwork, answer: Mapping[str, Any]) -> None:
    """Repeat a step that the child process did without a crash, while the child goes on."""
    if answer["done"] == "import":
        network.programs = answer.get("programs", network.programs)
        _ = network.imported
    else:
        prepared_network(network, answer["layout"])
