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
from typing import Any

import numpy as np
from chameleon_core.plugins.factory import load_factory
from chameleon_core.stages import Arrays
from chameleon_system.processes.answering import Answers, requests
from chameleon_system.processes.stamps import TOKEN
from chameleon_system.thread_limit import allowed_cores

from chameleon_networks.frameworks.reduced import ReducedNetwork, reduced_named
from chameleon_networks.package.load import checked_manifest
from chameleon_networks.shapes import converter

Network = Callable[[Arrays], Arrays]

_SLOW = 5.0


def delivered_network(request: dict[str, Any]) -> Network:
    """The compiled network of a folder, loaded as users load it."""
    folder = Path(request["folder"])
    if "apache-tvm" in checked_manifest(folder).get("needs", ()):
        # Without torch, which TVM imports otherwise: that takes longer than all the rest.
        importlib.import_module("chameleon_tvm.quick_tvm")
    network = runpy.run_path(str(folder / "load.py"))["load"](folder)

    def run(inputs: Arrays) -> Arrays:
        found = network(*inputs)
        return list(found) if isinstance(found, list) else [found]

    return run


def framework_network(request: dict[str, Any]) -> Network:
    """A network run by something else."""
    network: Network = requested_network(request).framework(request["name"], request["threads"])
    return network


def reduced_network(request: dict[str, Any]) -> ReducedNetwork:
    """A network run by something else in the precision that its name says."""
    chosen = reduced_named(request["name"])
    calibration: list[Arrays] = []
    if chosen.calibrated:
        inputs = read_arrays(Path(request["calibration"]))
        each = len(inputs) // request["batches"]
        calibration = [inputs[first : first + each] for first in range(0, len(inputs), each)]
    forms = requested_network(request).forms
    return chosen.made(forms, calibration, threads=request["threads"])


def requested_network(request: dict[str, Any]) -> Any:
    """The network that ``processes.request_of`` described."""
    factory = load_factory(request["factory"])
    kind: Any = load_factory(request["type"])
    return factory(converter().structure(request["options"], kind))


ROLES: dict[str, Callable[[dict[str, Any]], Network]] = {
    "delivered": delivered_network,
    "framework": framework_network,
    "reduced": reduced_network,
}
"""What a process can be asked to run."""


def main() -> None:
    """Serve until standard input ends."""
    os.environ.pop(TOKEN, None)
    answers = Answers()
    network: Network | None = None
    ran = False
    for request in requests():
        try:
            if request["do"] == "open":
                network = ROLES[request["role"]](request)
                # What is compiled ahead does the same in its first run as in any other.
                ran = request["role"] == "delivered"
                if "inputs" in request:
                    network(read_arrays(Path(request["inputs"])))
                    ran = True
                answer: dict[str, Any] = _opened(network)
            elif request["do"] == "profile":
                answer = _profiled(request)
            elif request["do"] == "about":
                answer = _about_this_process()
            elif network is None:
                answer = {"error": "no network is open"}
            elif request["do"] == "outputs":
                answer = _outputs(network, request)
                ran = True
            else:
                answer = _timed(network, request, ran=ran)
                ran = True
        except ModuleNotFoundError as error:
            problem, hint = (
                f"{error.name} is not installed",
                f"Install it: pip install {error.name}",
            )
            answer = {"problem": problem, "hint": hint}
        except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
            words = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {words[0] if words else 'no message'}"}
        answers.send(answer)


def _about_this_process() -> dict[str, Any]:
    """Its memory (its share of what it has in common with others), variables and cores."""
    file = Path("/proc/self/smaps_rollup")
    pss = re.search(r"^Pss:\s+(\d+) kB", file.read_text() if file.exists() else "", re.MULTILINE)
    return {
        "memory_bytes": 1024 * int(pss[1]) if pss else 0,
        "variables": dict(os.environ),
        "cores": allowed_cores(),
    }


def _opened(network: Network) -> dict[str, Any]:
    """What there is to say about a network that was opened."""
    return {"precision": network.precision} if isinstance(network, ReducedNetwork) else {}


def _outputs(network: Network, request: dict[str, Any]) -> dict[str, Any]:
    outputs = network(read_arrays(Path(request["inputs"])))
    write_arrays(Path(request["outputs"]), outputs)
    return {}


def _timed(network: Network, request: dict[str, Any], *, ran: bool = True) -> dict[str, Any]:
    """Seconds of single runs for about so long, after two that do not count.

    Of a network that takes many times so long the first run counts: it needs no warming up. The
    very first one of a process never does, since some compile what they run when they run it.

    Args:
        network: the network.
        request: of the parent.
        ran: whether it has run before.
    """
    inputs = read_arrays(Path(request["inputs"]))
    if not ran:
        network(inputs)
    seconds: list[float] = []
    uncounted = 2
    while not seconds or sum(seconds) < request["seconds"]:
        started = time.perf_counter()
        network(inputs)
        took = time.perf_counter() - started
        if uncounted and took < _SLOW * request["seconds"]:
            uncounted -= 1
        else:
            seconds.append(took)
    return {"seconds": seconds}


def _profiled(request: dict[str, Any]) -> dict[str, Any]:
    """Where the time of a delivered network goes; it is loaded once more."""
    profile = importlib.import_module("chameleon_networks.running.profile")
    inputs = read_arrays(Path(request["inputs"]))
    kernels = profile.kernel_seconds(request["folder"], inputs, quantile=request["quantile"])
    return {"kernels": kernels}


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write arrays into a file, in order."""
    np.savez(file, *arrays)


def read_arrays(file: Path) -> Arrays:
    """The arrays of a file, in order."""
    with np.load(file) as stored:
        return [stored[f"arr_{place}"] for place in range(len(stored.files))]


if __name__ == "__main__":
    main()
