"""A process that runs one network on request: ``python -m chameleon_networks.running.serve``.

Requests and replies are lines of JSON on standard input and output; arrays travel in files.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import time
from collections.abc import Callable
from pathlib import Path

import attrs
from chameleon_core.arrays import Arrays
from chameleon_system.processes.answering import Message
from chameleon_system.processes.stamps import TOKEN
from chameleon_system.thread_limit import allowed_cores

from chameleon_networks.frameworks.reduced import ReducedNetwork, reduced_named
from chameleon_networks.package.load import checked_manifest
from chameleon_networks.running.requests import (
    batches_in,
    read_arrays,
    requested_network,
    serve,
    write_arrays,
)

Network = Callable[[Arrays], Arrays]

_SLOW = 5.0


def delivered_network(request: Message) -> Network:
    """The compiled network of a folder, loaded as users load it."""
    folder = Path(request["folder"])
    if "apache-tvm" in checked_manifest(folder).get("needs", ()):
        # Without torch, which TVM imports otherwise: that takes longer than all the rest.
        importlib.import_module("chameleon_tvm.quick_tvm")
    network = runpy.run_path(str(folder / "load.py"))["load"](folder)

    def run(inputs: Arrays) -> Arrays:
        outputs = network(*inputs)
        return list(outputs) if isinstance(outputs, list) else [outputs]

    return run


def framework_network(request: Message) -> Network:
    """A network run by something else."""
    return requested_network(request).framework(request["name"], request["threads"])


def reduced_network(request: Message) -> ReducedNetwork:
    """A network run by something else in the precision that its name says."""
    chosen = reduced_named(request["name"])
    calibration: list[Arrays] = []
    if chosen.calibrated:
        calibration = batches_in(Path(request["calibration"]), request["batches"])
    forms = requested_network(request).forms
    return chosen.opened(forms, calibration, threads=request["threads"])


ROLES: dict[str, Callable[[Message], Network]] = {
    "delivered": delivered_network,
    "framework": framework_network,
    "reduced": reduced_network,
}
"""What a process can be asked to run."""


class Server:
    """Answers requests about one network, each by the method that it names under ``do``."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._ran = False

    def answer(self, request: Message) -> Message:
        """The answer to a request."""
        answer: Message = getattr(self, f"_{request['do']}")(request)
        return answer

    def _open(self, request: Message) -> Message:
        self._network = network = ROLES[request["role"]](request)
        # What is compiled ahead does the same in its first run as in any other.
        self._ran = request["role"] == "delivered"
        if "inputs" in request:
            self._outputs_of(request)
        return {"precision": network.precision} if isinstance(network, ReducedNetwork) else {}

    def _outputs(self, request: Message) -> Message:
        write_arrays(Path(request["outputs"]), self._outputs_of(request))
        return {}

    def _outputs_of(self, request: Message) -> Arrays:
        if self._network is None:
            raise ValueError("no network is open")
        outputs = self._network(read_arrays(Path(request["inputs"])))
        self._ran = True
        return outputs

    def _time(self, request: Message) -> Message:
        if not self._ran:
            self._outputs_of(request)
        assert self._network is not None  # noqa: S101 - it has run
        inputs = read_arrays(Path(request["inputs"]))
        return {"seconds": seconds_of(self._network, inputs, about=request["seconds"])}

    def _profile(self, request: Message) -> Message:
        """The time of a delivered network by kernel; it is loaded once more."""
        profile = importlib.import_module("chameleon_networks.running.profile")
        inputs = read_arrays(Path(request["inputs"]))
        kernels = profile.kernel_seconds(request["folder"], inputs, quantile=request["quantile"])
        return {"kernels": [attrs.asdict(kernel) for kernel in kernels]}

    def _about(self, _: Message) -> Message:
        """Its memory (its share of what it has in common with others), variables and cores."""
        file = Path("/proc/self/smaps_rollup")
        text = file.read_text() if file.exists() else ""
        pss = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        return {
            "memory_bytes": 1024 * int(pss[1]) if pss else 0,
            "variables": dict(os.environ),
            "cores": allowed_cores(),
        }


def seconds_of(network: Network, inputs: Arrays, *, about: float) -> list[float]:
    """Seconds of single runs for about so long, after two that do not count.

    If one run takes many times so long, the first counts: it needs no warming up. The very first
    one of a process never does, since some networks are compiled as they run.

    Args:
        network: one that has run before.
        inputs: of each run.
        about: seconds.
    """
    seconds: list[float] = []
    uncounted = 2
    while not seconds or sum(seconds) < about:
        started = time.perf_counter()
        network(inputs)
        took = time.perf_counter() - started
        if uncounted and took < _SLOW * about:
            uncounted -= 1
        else:
            seconds.append(took)
    return seconds


def main() -> None:
    """Serve until standard input ends."""
    os.environ.pop(TOKEN, None)
    serve(Server().answer)


if __name__ == "__main__":
    main()
