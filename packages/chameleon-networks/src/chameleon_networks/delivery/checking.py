"""A network tried before anything is tuned, in a process that the compiler may take down."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from chameleon_core.errors import ConfigError, TargetError
from chameleon_system.processes.child import status_words
from chameleon_system.processes.conversation import ChildEndedError, Conversation
from chameleon_tvm.words import WAY_OUT

from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.processes import DYING_SECONDS, network_child, request_of

log = structlog.get_logger()

_MODULE = "chameleon_networks.delivery.examine"
_LIMIT_SECONDS = 600.0
"""The check may take so long: a network may have gigabytes, and the machine may be busy."""


def tried(
    network: ImportedNetwork, layouts: Sequence[str], target: str, threads: int
) -> dict[str, Any]:
    """The first layout that a network can be delivered in.

    Args:
        network: as its framework has it.
        layouts: to try, in order.
        target: the resolved target.
        threads: that kernels are measured with.

    Returns:
        As ``examine.examined``, with a sentence ``summary``.

    Raises:
        ConfigError: there is none; names the operator, its place and a way out.
        TargetError: it is not for this machine.
    """
    crashed: dict[str, str] = {}
    left = list(layouts)
    while left:
        answer = _asked(network, left, target, threads)
        if "crash" not in answer:
            break
        crashed[left.pop(0)] = answer["crash"]
    else:
        raise ConfigError(
            "the network cannot be compiled: "
            + "; ".join(f"in {layout} {what}" for layout, what in crashed.items()),
            hint=WAY_OUT,
        )
    if "problem" in answer:
        kind = TargetError if answer.get("target") else ConfigError
        raise kind(answer["problem"], hint=answer["hint"])
    found = {**answer, "refused": {**crashed, **answer["refused"]}}
    return {**found, "summary": _summary(found)}


def _asked(
    network: ImportedNetwork, layouts: Sequence[str], target: str, threads: int
) -> dict[str, Any]:
    """The answer of a process; how it ended, under ``crash``, where it gave none."""
    request = {
        **request_of(network),
        "layouts": list(layouts),
        "target": target,
        "threads": threads,
        "started": time.monotonic(),
    }
    with network_child(_MODULE) as child:
        conversation = Conversation(child)
        answer: dict[str, Any] = {}
        try:
            conversation.tell(request)
            network.read_ahead()
            while "done" in (answer := conversation.answer(_LIMIT_SECONDS)):
                _repeat(network, answer)
        except TimeoutError:
            return {"crash": f"the compiler was not done after {_LIMIT_SECONDS:.0f} s"}
        except ChildEndedError:
            how = status_words(child.reap(DYING_SECONDS))
            return {"crash": f"the compiler ended with {how}"}
        else:
            return answer
        finally:
            log.debug("network_examined", steps=answer.get("step_seconds"), log=child.log)


def _repeat(network: ImportedNetwork, told: Mapping[str, Any]) -> None:
    """Do what the other process has survived, while it goes on with what it may not survive."""
    if told["done"] == "import":
        _ = network.imported
    else:
        prepared_network(network, told["layout"])


def _summary(found: dict[str, Any]) -> str:
    error = found.get("max_relative_error")
    agrees = (
        "it compiles"
        if error is None
        else f"it compiles, and agrees with {found['reference']} (error {error:.0e})"
    )
    conditioning = found.get("conditioning")
    return "; ".join(
        [
            f"{agrees} in {found['layout']}",
            *([conditioning] if conditioning else []),
            *(f"not in {layout}: {problem}" for layout, problem in found["refused"].items()),
        ]
    )
