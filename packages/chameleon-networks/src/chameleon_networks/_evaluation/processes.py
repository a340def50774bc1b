"""Starts child processes that run one network each, and ends processes that hang."""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError, TargetError
from chameleon_system.api import (
    ChildEndedError,
    ChildProcess,
    Closeable,
    Conversation,
    Message,
    describe_status,
    temporary_folder,
)
from chameleon_tvm.api import one_line

from chameleon_networks._evaluation.messages import (
    describe_network,
    read_arrays,
    read_batches,
    write_arrays,
    write_batches,
)
from chameleon_networks._evaluation.network_cache import GRAPH, cache_of
from chameleon_networks._importers.imported_network import ImportedNetwork

_MODULE = "chameleon_networks._evaluation.worker"
_START_SECONDS = 300.0
"""Limit for importing and compiling: torch.compile takes minutes on a large network."""

_REDUCE_SECONDS = 900.0
"""Limit for a process that calibrates and quantizes the network before compiling it."""

RUN_SECONDS = 300.0
"""Limit for one answer."""

_DYING_SECONDS = 10.0
"""Limit for the end of a process that closed its pipes: freeing gigabytes takes seconds."""


class WorkerProcess(Closeable):
    """A child process that opens a network (see ``opened``) and answers requests.

    Args:
        start_seconds: Limit in seconds for opening the network.

    Attributes:
        answer: The reply of the process to the request that opened the network.
    """

    def __init__(
        self,
        name: str,
        request: Message | None,
        *,
        module: str,
        threads: int,
        preloads: Sequence[str] = (),
        warm_up: Sequence[Arrays] = (),
        wait: bool = True,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self.name = name
        self.answer: Message = {}
        self._start_seconds = start_seconds
        self._warmed_up = 0
        self._folder = temporary_folder()
        self._child = ChildProcess(module, preloads, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._conversation = Conversation(self._child)
        try:
            if request is not None:
                self._open({"threads": threads, **request}, warm_up)
            if wait:
                self.opened()
        except BaseException:
            self.close()
            raise

    def _open(self, request: Message, warm_up: Sequence[Arrays] = ()) -> None:
        self._warmed_up = len(warm_up)
        files = {}
        if warm_up:
            inputs, outputs = self._file("warm_up"), self._file("first_outputs")
            write_batches(inputs, warm_up)
            files = {"inputs": str(inputs), "outputs": str(outputs), "warm_up": len(warm_up)}
        self._tell({"do": "open", **request, **files})

    @property
    def first_outputs(self) -> list[Arrays]:
        """The outputs of the inferences with which the network was opened (``warm_up``)."""
        return read_batches(self._file("first_outputs"), self._warmed_up) if self._warmed_up else []

    def opened(self, most_seconds: float = math.inf) -> None:
        """Wait until the child process has opened its network, for some seconds at most."""
        limit = self._start_seconds + RUN_SECONDS * self._warmed_up
        try:
            self.answer = self._answer(min(limit, most_seconds))
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the child process still runs."""
        return self._child.alive

    def pause(self) -> None:
        """Stop the process until its next request, since its threads may spin."""
        self._child.signal(signal.SIGSTOP)

    def close(self) -> None:
        """End the child process and all processes that it started, if it still runs."""
        self._child.kill()
        self._folder.cleanup()

    def _file(self, name: str) -> Path:
        return Path(self._folder.name, f"{name}.arrays")

    def _written(self, inputs: Arrays) -> str:
        file = self._file("inputs")
        write_arrays(file, inputs)
        return str(file)

    def _ask(self, request: Message, limit: float = RUN_SECONDS) -> Message:
        self._tell(request)
        return self._answer(limit)

    def _tell(self, request: Message) -> None:
        self._child.signal(signal.SIGCONT)
        try:
            self._conversation.tell(request)
        except ChildEndedError as error:
            raise ended_process_error(self.name, self._child) from error

    def _answer(self, limit: float) -> Message:
        return wait_for_reply(self.name, self._child, self._conversation, limit)


def wait_for_reply(
    name: str, child: ChildProcess, conversation: Conversation, limit: float
) -> Message:
    """Wait for the next reply of a child process."""
    try:
        answer = conversation.answer(limit)
    except TimeoutError:
        child.kill()
        raise ChameleonError(
            f"{name} did not answer within {limit:.0f} s and was killed",
            hint="Is the machine busy? Run the command again.",
        ) from None
    except ChildEndedError as error:
        raise ended_process_error(name, child) from error
    if "problem" in answer:
        kind = TargetError if answer.get("target") else ConfigError
        raise kind(answer["problem"], hint=answer["hint"])
    if "error" in answer:
        raise ChameleonError(
            f"{name} failed: {answer['error']}", hint="Run it by hand to see all of its output."
        )
    return answer


def ended_process_error(name: str, child: ChildProcess) -> ChameleonError:
    """The error for a process that has ended unexpectedly."""
    status = child.reap(_DYING_SECONDS)
    words = child.log.splitlines()
    return ChameleonError(
        f"the process of {name} ended with {describe_status(status)}",
        hint=f"Its last words: {words[-1][:400]}" if words else "It said nothing.",
    )


class NetworkProcess(WorkerProcess):
    """A child process that runs one network.

    Attributes:
        folder: The folder of a delivered network. None if a framework runs the network.
    """

    def __init__(self, name: str, request: Message | None, **options: Any) -> None:
        delivered = request is not None and request["role"] == "delivered"
        self.folder = Path(request["folder"]) if request and delivered else None
        super().__init__(name, request, module=_MODULE, **options)

    @property
    def is_precompiled(self) -> bool:
        """Whether the network is delivered, with nothing to compile in its first inference."""
        return self.folder is not None

    def reopen(self, network: ImportedNetwork, threads: int, inputs: Arrays) -> None:
        """Let the process of a framework open another network, and wait for it."""
        request = {"role": "framework", "name": self.name, "threads": threads}
        self._open({**request, **describe_network(network)}, [inputs])
        self.opened()

    def open(self, name: str, threads: int, warm_up: Sequence[Arrays]) -> None:
        """Let an ``importer_process`` open its network in a framework; call ``opened`` next."""
        self.name = name
        self._open({"role": "framework", "name": name, "threads": threads}, warm_up)

    def open_delivered(self, folder: Path, threads: int) -> None:
        """Let an idle process open the delivered network of a folder, and wait for it."""
        self.folder = folder
        self._open({"role": "delivered", "folder": str(folder), "threads": threads})
        self.opened()

    def programs(self) -> Mapping[str, str]:
        """Let an importer write the programs that it exported; the files by attribute."""
        return dict(self._ask({"do": "save"}, self._start_seconds)["programs"])

    def outputs(self, inputs: Arrays) -> Arrays:
        """Run the network once in its process, and return its outputs."""
        file = self._file("outputs")
        self._ask({"do": "outputs", "inputs": self._written(inputs), "outputs": str(file)})
        return read_arrays(file)

    def seconds(self, inputs: Arrays, *, about: float) -> list[float]:
        """The seconds of each inference, repeated for about ``about`` seconds."""
        request = {"do": "time", "inputs": self._written(inputs), "seconds": about}
        return list(self._ask(request)["seconds"])

    def about(self) -> Message:
        """The process's ``memory_bytes``, ``cores`` and environment ``variables``."""
        return self._ask({"do": "about"})

    def profile(
        self, inputs: Arrays, *, quantile: float = 0.5, repeats: int = 0
    ) -> list[NetworkResult.Kernel]:
        """Measure the seconds of each kernel of a delivered network, which is loaded once more.

        With ``repeats``, each call is repeated as often, and the time is that of a repetition.
        """
        request = {"do": "profile", "inputs": self._written(inputs), "folder": str(self.folder)}
        answer = self._ask({**request, "quantile": quantile, "repeats": repeats})
        return [NetworkResult.Kernel(**row) for row in answer["kernels"]]


def delivered_process(name: str, folder: Path, *, threads: int, level: str = "") -> NetworkProcess:
    """Start a process with the delivered network of a folder, perhaps in one of its levels."""
    request = {"role": "delivered", "folder": str(folder), "level": level}
    return NetworkProcess(name, request, threads=threads)


def idle_process() -> NetworkProcess:
    """Start a process without a network, which ``open_delivered`` tells what to run."""
    return NetworkProcess("the compiled network", None, threads=0, wait=False)


def framework_process(network: ImportedNetwork, name: str, **options: Any) -> NetworkProcess:
    """Start a process in which a framework runs a network."""
    request = {"role": "framework", "name": name, **describe_network(network)}
    return NetworkProcess(name, request, **options)


def reference_process(
    network: ImportedNetwork, inputs: Arrays, *, threads: int, preferred: str | None = None
) -> NetworkProcess:
    """Start a process with the first of a network's references that computes its outputs."""
    problems: dict[str, ChameleonError] = {}
    names = network.references if preferred is None else (preferred, *network.references)
    for name in names:
        try:
            return framework_process(network, name, threads=threads, warm_up=[inputs])
        except ChameleonError as error:
            problems[name] = error
    first, *_ = problems.values()
    raise ChameleonError(reasons(problems), hint=first.hint)


def reasons(problems: Mapping[str, ChameleonError]) -> str:
    """A clause for messages that says why implementations cannot run a network, by name."""
    return "; ".join(f"{name} cannot: {one_line(error)}" for name, error in problems.items())


def importer_process(network: ImportedNetwork) -> NetworkProcess | None:
    """Start a process that imports torch and caches the graph; None if that is not needed."""
    if not network.preloads:
        return None
    kept = cache_of(network, network.programs_folder)
    if kept is not None and kept.fact(GRAPH) is not None:
        return None
    name = "the network's importer"
    request = {"role": "framework", "do": "read", **describe_network(network, reads=True)}
    return NetworkProcess(name, request, threads=0, preloads=network.preloads, wait=False)


@attrs.define
class PendingImport:
    """A network that another process imports while this one does other work.

    Attributes:
        reader: A process from ``importer_process`` that imports the network, or None.
        runner: A process that will run the compiled network, or None if none was started yet.
    """

    network: ImportedNetwork
    reader: NetworkProcess | None
    threads: int
    runner: NetworkProcess | None = None

    def close(self) -> None:
        """End the processes that still run, such as after a failed run."""
        for process in (self.reader, self.runner):
            if process is not None:
                process.close()


def reduced_process(
    network: ImportedNetwork, name: str, calibration: tuple[Path, int], **options: Any
) -> NetworkProcess:
    """Start a process in which a framework runs a network in reduced precision."""
    file, batches = calibration
    request = {
        "name": name,
        "calibration": str(file),
        "batches": batches,
        **describe_network(network),
    }
    return NetworkProcess(
        name, {"role": "reduced", **request}, start_seconds=_REDUCE_SECONDS, **options
    )
