"""Processes that run networks: one each, with the same threads, killed when they hang."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from chameleon_core.errors import ChameleonError, ConfigError
from chameleon_core.network_result import KernelTime
from chameleon_core.stages import Arrays
from chameleon_system.processes.child import ChildProcess, status_words
from chameleon_system.processes.conversation import ChildEndedError, Conversation, Message

from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.requests import read_arrays, request_of, write_arrays

_MODULE = "chameleon_networks.running.serve"
_START_SECONDS = 300.0
"""A process may import and compile for so long: torch.compile takes minutes on a large network."""

_REDUCE_SECONDS = 900.0
"""One that quantizes the network before it compiles it, with inputs to calibrate with, may take so
long."""

RUN_SECONDS = 300.0
"""An answer may take so long."""

DYING_SECONDS = 10.0
"""A process that has closed its side may take so long to end: it gives gigabytes back first."""


class AskedProcess:
    """A process that has a network open and is asked about it.

    Args:
        name: what it is called in messages.
        request: what to open.
        module: that the process runs.
        threads: that it computes with.
        warm_up: inputs of an inference that belongs to opening it, or None.
        wait: until it is open; otherwise ``opened`` has to be called before anything else.
        start_seconds: that opening it may take.

    Attributes:
        told: what it said when it was open.
    """

    def __init__(
        self,
        name: str,
        request: Message,
        *,
        module: str,
        threads: int,
        warm_up: Arrays | None = None,
        wait: bool = True,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self.name = name
        self.answer: Message = {}
        self._start_seconds = start_seconds
        self._folder = tempfile.TemporaryDirectory(prefix="chameleon-network-")
        self._child = network_child(module)
        self._conversation = Conversation(self._child)
        try:
            files = {} if warm_up is None else {"inputs": self._written(warm_up)}
            self._tell({"do": "open", "threads": threads, **request, **files})
            if wait:
                self.opened()
        except BaseException:
            self.close()
            raise

    def opened(self) -> None:
        """Wait until it is open.

        Raises:
            ChameleonError: it cannot be opened, died or hung; it is closed then.
        """
        try:
            self.answer = self._answer(self._start_seconds)
        except BaseException:
            self.close()
            raise

    def pause(self) -> None:
        """Stop it until it is asked for something: idle pools of threads spin for a while."""
        self._child.signal(signal.SIGSTOP)

    def close(self) -> None:
        """End the process and all it started; safe to call twice."""
        self._child.kill()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _file(self, name: str) -> Path:
        return Path(self._folder.name, f"{name}.npz")

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
            raise self._gone() from error

    def _answer(self, limit: float) -> Message:
        return awaited(self.name, self._child, self._conversation, limit)

    def _gone(self) -> ChameleonError:
        return gone(self.name, self._child)


def awaited(name: str, child: ChildProcess, conversation: Conversation, limit: float) -> Message:
    """The next answer of a process.

    Args:
        name: what it is called in messages.
        child: the process.
        conversation: with it.
        limit: seconds after which it is killed.

    Raises:
        ConfigError: what it says of the network.
        ChameleonError: it fails, died or hung.
    """
    try:
        answer = conversation.answer(limit)
    except TimeoutError:
        child.kill()
        raise ChameleonError(
            f"{name} did not answer within {limit:.0f} s and was killed",
            hint="Is the machine busy? Run the command again.",
        ) from None
    except ChildEndedError as error:
        raise gone(name, child) from error
    if "problem" in answer:
        raise ConfigError(answer["problem"], hint=answer["hint"])
    if "error" in answer:
        raise ChameleonError(
            f"{name} failed: {answer['error']}", hint="Run it by hand to see all of its output."
        )
    return answer


def gone(name: str, child: ChildProcess) -> ChameleonError:
    """The error of a process that has ended."""
    status = child.reap(DYING_SECONDS)
    words = child.log.splitlines()
    return ChameleonError(
        f"the process of {name} ended with {status_words(status)}",
        hint=f"Its last words: {words[-1][:400]}" if words else "It said nothing.",
    )


class NetworkProcess(AskedProcess):
    """One network in a process of its own.

    Args:
        name: what it is called in messages.
        request: what to open; see ``serve``.
        options: others of ``AskedProcess``.

    Attributes:
        compiled_ahead: whether its first run is like any other, with nothing left to compile.
    """

    @property
    def precision(self) -> str | None:
        """The precision that it reports; None if it does not."""
        return self.answer.get("precision")

    def __init__(self, name: str, request: Message, **options: Any) -> None:
        self.compiled_ahead = request["role"] == "delivered"
        super().__init__(name, request, module=_MODULE, **options)

    def outputs(self, inputs: Arrays) -> Arrays:
        """Run the network once.

        Raises:
            ChameleonError: it raised, died or hung.
        """
        file = self._file("outputs")
        self._ask({"do": "outputs", "inputs": self._written(inputs), "outputs": str(file)})
        return read_arrays(file)

    def seconds(self, inputs: Arrays, *, about: float) -> list[float]:
        """Seconds of single runs, repeated for about so many seconds.

        Raises:
            ChameleonError: it raised, died or hung.
        """
        request = {"do": "time", "inputs": self._written(inputs), "seconds": about}
        times: list[float] = self._ask(request)["seconds"]
        return times

    def about(self) -> Message:
        """Facts about the process: ``memory_bytes``, ``variables`` and ``cores``.

        Raises:
            ChameleonError: it died or hung.
        """
        return self._ask({"do": "about"})

    def profile(self, folder: str, inputs: Arrays, *, quantile: float = 0.5) -> list[KernelTime]:
        """Seconds of each kernel of a delivered network; see ``profile.kernel_seconds``.

        Raises:
            ChameleonError: it raised, died or hung.
        """
        request = {"do": "profile", "inputs": self._written(inputs), "folder": folder}
        answer = self._ask({**request, "quantile": quantile})
        return [KernelTime(**row) for row in answer["kernels"]]


def network_child(module: str, arguments: Sequence[str] = ()) -> ChildProcess:
    """A child that a network is asked of, in lines of JSON.

    Its variables are those of whoever called Chameleon: figures are what users get.

    Args:
        module: that it runs.
        arguments: of the module.
    """
    return ChildProcess(module, arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def delivered_process(name: str, folder: Path, *, threads: int) -> NetworkProcess:
    """A process with the compiled network of a folder.

    Args:
        name: what it is called in messages.
        folder: the network's.
        threads: that it computes with.
    """
    return NetworkProcess(name, {"role": "delivered", "folder": str(folder)}, threads=threads)


def framework_process(network: ImportedNetwork, name: str, **options: Any) -> NetworkProcess:
    """A process in which something else runs a network.

    Args:
        network: as its framework has it.
        name: one of ``network.frameworks``.
        options: of ``AskedProcess``: ``threads``, ``warm_up`` and ``wait``.
    """
    request = {"role": "framework", "name": name, **request_of(network)}
    return NetworkProcess(name, request, **options)


def reduced_process(
    network: ImportedNetwork, name: str, calibration: tuple[Path, int], **options: Any
) -> NetworkProcess:
    """A process in which something else runs a network in reduced precision.

    Args:
        network: as its framework has it.
        name: of a ``frameworks.reduced.Reduced``.
        calibration: a file with the inputs of some inferences, one after the other, and their
            number.
        options: of ``AskedProcess``: ``threads`` and ``warm_up``.
    """
    file, batches = calibration
    request = {"name": name, "calibration": str(file), "batches": batches, **request_of(network)}
    return NetworkProcess(
        name, {"role": "reduced", **request}, start_seconds=_REDUCE_SECONDS, **options
    )
