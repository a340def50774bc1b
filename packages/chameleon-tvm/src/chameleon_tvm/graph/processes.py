"""Processes that run networks: one each, with the same threads, killed when they hang."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays

from chameleon_tvm.graph.serve import read_arrays, write_arrays

if TYPE_CHECKING:
    from chameleon_tvm.frontends.networks import NetworkFrontend

_START_SECONDS = 300.0
"""For importing and compiling: torch.compile takes minutes on a large network."""

_RUN_SECONDS = 300.0


class NetworkProcess:
    """One network in a process of its own.

    Args:
        name: what it is called in messages.
        request: what to open; see ``serve``.
        threads: that it computes with.
        warm_up: inputs of an inference that belongs to opening it, or None.
        wait: until it is open; otherwise ``opened`` has to be called before anything else.

    Attributes:
        compiled_ahead: whether its first run is like any other, with nothing left to compile.
    """

    def __init__(
        self,
        name: str,
        request: dict[str, Any],
        *,
        threads: int,
        warm_up: Arrays | None = None,
        wait: bool = True,
    ) -> None:
        self.name = name
        self.compiled_ahead = request["role"] == "delivered"
        self._folder = tempfile.TemporaryDirectory(prefix="chameleon-network-")
        self._log = Path(self._folder.name, "log").open("w+b")  # noqa: SIM115 - closed by close
        count = str(threads)
        environment = {
            **os.environ,
            "TVM_NUM_THREADS": count,
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chameleon_tvm.graph.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        try:
            given = {} if warm_up is None else {"inputs": self._written(warm_up)}
            self._tell({"do": "open", "threads": threads, **request, **given})
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
            self._answer(_START_SECONDS)
        except BaseException:
            self.close()
            raise

    def outputs(self, inputs: Arrays) -> Arrays:
        """Run the network once.

        Raises:
            ChameleonError: it raised, died or hung.
        """
        made = self._file("outputs")
        request = {"do": "outputs", "inputs": self._written(inputs), "outputs": str(made)}
        self._ask(request, _RUN_SECONDS)
        return read_arrays(made)

    def seconds(self, inputs: Arrays, *, about: float) -> list[float]:
        """Seconds of single runs, repeated for about so many seconds.

        Raises:
            ChameleonError: it raised, died or hung.
        """
        request = {"do": "time", "inputs": self._written(inputs), "seconds": about}
        times: list[float] = self._ask(request, _RUN_SECONDS)["seconds"]
        return times

    def profile(self, folder: str, inputs: Arrays) -> list[dict[str, Any]]:
        """Seconds of each kernel of a delivered network; see ``profile.kernel_seconds``.

        Raises:
            ChameleonError: it raised, died or hung.
        """
        request = {"do": "profile", "inputs": self._written(inputs), "folder": folder}
        kernels: list[dict[str, Any]] = self._ask(request, _RUN_SECONDS)["kernels"]
        return kernels

    def pause(self) -> None:
        """Stop it until it is asked for something: idle pools of threads spin for a while."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End the process and all it started; safe to call twice."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
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

    def _ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        self._tell(request)
        return self._answer(limit)

    def _tell(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:  # a closed pipe, or one that this side closed
            raise self._gone() from error

    def _answer(self, limit: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._line(limit))
        if "error" in answer:
            raise ChameleonError(
                f"{self.name} failed: {answer['error']}",
                hint="Run it by hand to see all of its output.",
            )
        return answer

    def _line(self, limit: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101
        deadline = time.monotonic() + limit
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    raise ChameleonError(
                        f"{self.name} did not answer within {limit:.0f} s and was killed",
                        hint="Is the machine busy? Run the command again.",
                    )
                part = os.read(self._process.stdout.fileno(), 1 << 20)
                if not part:
                    raise self._gone()
                received += part
        return received

    def _gone(self) -> ChameleonError:
        status = self._process.wait()
        told: list[str] = []
        if not self._log.closed:
            self._log.seek(0)
            told = self._log.read().decode(errors="replace").strip().splitlines()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return ChameleonError(
            f"the process of {self.name} ended with {how}",
            hint=f"Its last words: {told[-1][:400]}" if told else "It said nothing.",
        )


def delivered_process(name: str, folder: Path, *, threads: int) -> NetworkProcess:
    """A process with the compiled network of a folder.

    Args:
        name: what it is called in messages.
        folder: the network's.
        threads: that it computes with.
    """
    request = {"role": "delivered", "folder": str(folder)}
    return NetworkProcess(name, request, threads=threads)


def rival_process(
    frontend: NetworkFrontend,
    name: str,
    *,
    threads: int,
    warm_up: Arrays | None = None,
    wait: bool = True,
) -> NetworkProcess:
    """A process in which something else runs a network.

    Args:
        frontend: the network.
        name: one of ``frontend.rivals``.
        threads: that it computes with.
        warm_up: inputs of an inference that belongs to opening it, or None.
        wait: until it is open; otherwise ``NetworkProcess.opened`` has to be called.
    """
    request = {"role": "rival", "name": name, **frontend_request(frontend)}
    return NetworkProcess(name, request, threads=threads, warm_up=warm_up, wait=wait)


def frontend_request(frontend: NetworkFrontend) -> dict[str, Any]:
    """A frontend as JSON values, from which ``serve.requested_frontend`` makes it again."""
    kind = type(frontend)
    # Another process has no run folder to recall a layout from.
    options = attrs.evolve(frontend.options, layout=frontend.choice.layout)
    return {
        "factory": f"{kind.__module__}:{kind.__qualname__}",
        "type": f"{type(options).__module__}:{type(options).__qualname__}",
        "options": attrs.asdict(options),
    }
