"""A process that runs one network on request: ``python -m chameleon_networks._evaluation.worker``.

Requests and replies are lines of JSON on standard input and output. Arrays are passed in files.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chameleon_system.api import block_import, pause_garbage_collection

# This process shows no tracebacks, so it needs no rich, whose import the run would wait for.
with block_import("rich"), pause_garbage_collection():
    import attrs
    import cattrs
    from chameleon_core.plugin_api import Arrays
    from chameleon_system.api import TOKEN, AnswerStream, Message, allowed_cores
    from structlog.testing import capture_logs

    from chameleon_networks._artifact.load import checked_manifest
    from chameleon_networks._evaluation.messages import (
        network_from,
        preload,
        read_arrays,
        read_batches,
        serve,
        write_arrays,
        write_batches,
    )
    from chameleon_networks._evaluation.network_cache import cache_of
    from chameleon_networks._evaluation.state import outputs_and_state
    from chameleon_networks._frameworks.inference import TORCH_COMPILE
    from chameleon_networks._frameworks.reduced_precision import (
        ReducedNetwork,
        default_precision,
        framework_named,
    )
    from chameleon_networks._importers.imported_network import ImportedNetwork

Network = Callable[[Arrays], Arrays]

_SLOW = 5.0


def delivered_network(request: Message) -> Network:
    """Load the compiled network of a folder with the folder's own ``load.py``, as users do."""
    folder = Path(request["folder"])
    if "apache-tvm" in checked_manifest(folder).get("needs", ()):
        # This import of TVM leaves out torch, whose import takes longer than all the rest.
        _ = importlib.import_module("chameleon_tvm.api").tvm
    if request.get("level"):
        os.environ["NETWORK_LEVEL"] = request["level"]
    network = runpy.run_path(str(folder / "load.py"))["load"](folder)

    def run(inputs: Arrays) -> Arrays:
        return outputs_and_state(network, inputs)

    return run


def reduced_network(request: Message) -> ReducedNetwork:
    """Open a network in a framework and a reduced precision, as a request asks."""
    chosen = framework_named(request["name"])
    calibration: list[Arrays] = []
    if chosen.calibrated:
        calibration = read_batches(Path(request["calibration"]), request["batches"])
    forms = network_from(request).forms
    return chosen.opened(forms, calibration, threads=request["threads"])


ROLES: dict[str, Callable[[Message], Network]] = {
    "delivered": delivered_network,
    "reduced": reduced_network,
}
"""The kinds of networks that a process can be asked to run, by the name in the request."""


class Server:
    """Answers requests about one network; the key ``do`` of a request names the method."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._imported: ImportedNetwork | None = None
        self._programs = ""
        self._ran = False

    def answer(self, request: Message) -> Message:
        """Answer a request with the method that its key ``do`` names."""
        answer: Message = getattr(self, f"_{request['do']}")(request)
        return answer

    def _read(self, request: Message) -> Message:
        """Import a network and keep its graph; another process repeats what this one logs."""
        self._imported = network = network_from(request)
        self._programs = request["network"]["folder"]
        network.kept = cache_of(network, self._programs)
        with capture_logs() as messages, pause_garbage_collection():
            network.keep()
        return {"messages": messages, "sources": cattrs.unstructure(network.sources)}

    def _framework(self, request: Message) -> Network:
        """Open a network in the framework that the request names."""
        network = self._imported or network_from(request)
        return network.framework(request["name"], request["threads"])

    def _open(self, request: Message) -> Message:
        with pause_garbage_collection():  # imports make no garbage
            self._network = network = ROLES.get(request["role"], self._framework)(request)
        # A network that is compiled ahead of time needs no warm-up: its first run is like any
        # other.
        self._ran = request["role"] == "delivered"
        if "warm_up" in request:
            batches = read_batches(Path(request["inputs"]), request["warm_up"])
            with _leaving_a_core(request.get("name", "")):
                outputs = [network(inputs) for inputs in batches]
            write_batches(Path(request["outputs"]), outputs)
            self._ran = True
        if isinstance(network, ReducedNetwork):
            return {"precision": network.precision}
        return {"default": default_precision(request.get("name", ""))}

    def _save(self, _: Message) -> Message:
        """Write the files from which other processes read the programs that this one exported."""
        network = self._imported
        return {"programs": {} if network is None else network.save_programs(self._programs)}

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
        assert self._network is not None  # noqa: S101 - the network was opened
        inputs = read_arrays(Path(request["inputs"]))
        return {"seconds": seconds_of(self._network, inputs, about=request["seconds"])}

    def _profile(self, request: Message) -> Message:
        """Measure the seconds of each kernel of a delivered network, which is loaded once more."""
        profile = importlib.import_module("chameleon_networks._evaluation.profile")
        inputs = read_arrays(Path(request["inputs"]))
        options = {key: request[key] for key in ("quantile", "repeats")}
        kernels = profile.kernel_seconds(request["folder"], inputs, **options)
        return {"kernels": [attrs.asdict(kernel) for kernel in kernels]}

    def _about(self, _: Message) -> Message:
        """The memory of this process (shared memory counts in part), variables and cores."""
        file = Path("/proc/self/smaps_rollup")
        text = file.read_text() if file.exists() else ""
        pss = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        return {
            "memory_bytes": 1024 * int(pss[1]) if pss else 0,
            "variables": dict(os.environ),
            "cores": allowed_cores(),
        }


@contextlib.contextmanager
def _leaving_a_core(framework: str) -> Iterator[None]:
    """Let torch use one thread less, since spinning threads took eight times as long."""
    # torch.compile would compile again for another number of threads.
    torch: Any = None if framework == TORCH_COMPILE else sys.modules.get("torch")
    threads = 1 if torch is None else torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(threads - 1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seconds_of(network: Network, inputs: Arrays, *, about: float) -> list[float]:
    """The seconds of each inference after two warm-ups, which count if they are slow."""
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
    """Import the modules that the arguments name, and answer requests until standard input ends."""
    os.environ.pop(TOKEN, None)
    answers = AnswerStream()  # before an import that prints something
    preload(sys.argv[1:])
    serve(Server().answer, answers)


if __name__ == "__main__":
    main()
