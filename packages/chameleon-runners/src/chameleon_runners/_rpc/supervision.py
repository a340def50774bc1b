"""A tracker and its servers as child processes, which are watched and restarted."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Self

import attrs
import structlog
from chameleon_core.plugin_api import ChameleonError, TargetError
from chameleon_system.api import ChildEndedError, ChildProcess, Conversation, make_scratch_folder

from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.tracker import queues

_log = structlog.get_logger()

_MODULE = "chameleon_runners._rpc.server_program"
_END_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_STEADY_SECONDS = 30.0
"""Seconds of life after which a process that ends is restarted without a long pause."""

START_SECONDS = 60.0
"""The longest start of a process in seconds, imports included."""


@attrs.define(eq=False)
class SupervisedProcess:
    """A process that listens on a port, and is restarted on the same port when it ends.

    Attributes:
        arguments: command-line arguments besides role, host and port.
    """

    role: str
    address: Address
    _arguments: Sequence[str]
    _environment: dict[str, str]
    restarts: int = attrs.field(default=0, init=False)
    _process: ChildProcess | None = attrs.field(default=None, init=False)
    _conversation: Conversation | None = attrs.field(default=None, init=False)
    _started: float = attrs.field(default=0.0, init=False)
    _pause: float = attrs.field(default=_FIRST_PAUSE, init=False)
    _due: float = attrs.field(default=0.0, init=False)
    _listening: bool = attrs.field(default=False, init=False)

    @property
    def pid(self) -> int | None:
        """The process id; None if no process runs."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive

    def start(self) -> None:
        """Start the process; ``listens`` tells when it is ready."""
        where = ["--host", self.address.host, "--port", str(self.address.port)]
        self._process = ChildProcess(
            _MODULE,
            [self.role, *where, *self._arguments],
            environment=self._environment,
            stdout=subprocess.PIPE,
        )
        self._conversation = Conversation(self._process)
        self._started = time.monotonic()
        self._listening = False

    def wait(self) -> None:
        """Wait until the process listens on its port."""
        limit = time.monotonic() + START_SECONDS
        while not self.listens(limit - time.monotonic()):
            if not self.alive or time.monotonic() > limit:
                output = self._process.log[-600:] if self._process is not None else ""
                self.stop()
                raise TargetError(
                    f"the {self.role} at {self.address} does not start: {output or 'it is silent'}",
                    hint="Choose another --port if this one is taken.",
                )

    def listens(self, seconds: float = 0.0) -> bool:
        """Whether the process has reported that it listens on its port."""
        if not self._listening and self._conversation is not None:
            with contextlib.suppress(TimeoutError, ChildEndedError):
                self._listening = "port" in self._conversation.answer(seconds)
        return self._listening

    def supervise(self) -> None:
        """Restart the process if it has ended."""
        if self.alive:
            self.listens()
            return
        now = time.monotonic()
        if self._due == 0.0:
            if now - self._started > _STEADY_SECONDS:
                self._pause = _FIRST_PAUSE
            self._due = now + self._pause
            self._pause = min(2.0 * self._pause, _LONGEST_PAUSE)
        if now >= self._due:
            self._due = 0.0
            self.stop()
            self.restarts += 1
            _log.warning("process_restarted", role=self.role, address=str(self.address))
            self.start()

    def kill(self) -> None:
        """Kill the process; the next ``supervise`` restarts it."""
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    def stop(self) -> None:
        """End the process and all processes that it started."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(_END_SECONDS)


_CHECK_SECONDS = 5.0
_MISSES = 3


@attrs.frozen(kw_only=True)
class RpcServerOptions:
    """The tracker and the servers to start.

    Attributes:
        host: the address to listen on. With any but a loopback address, other machines can connect.
        port: the port of the tracker; the servers use the ports after it. 0 for any free ports.
        announce: the address that the servers give to clients; ``host`` if empty.
        threads: the number of threads of each server's kernels; None for TVM's default.
        register: a module that each server imports, to register functions; empty for none.
    """

    host: str = "127.0.0.1"
    port: int = 0
    key: str = "local"
    servers: int = 1
    announce: str = ""
    threads: int | None = None
    register: str = ""

    @property
    def private(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class RpcServers:
    """A context in which a tracker and servers of TVM's RPC run."""

    def __init__(self, options: RpcServerOptions) -> None:
        self._options = options
        port, *ports = find_ports(options.host, options.port, 1 + options.servers)
        self._folder = make_scratch_folder()
        environment = {**os.environ, "TMPDIR": str(self._folder), "PYTHONUNBUFFERED": "1"}
        if options.threads is not None:
            environment["TVM_NUM_THREADS"] = str(options.threads)
        wildcard = options.host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
        self._announced = options.announce or (_external_address() if wildcard else options.host)
        local_host = "127.0.0.1" if wildcard else options.host
        self.tracker = SupervisedProcess(
            "tracker", Address(host=options.host, port=port), [], environment
        )
        arguments = ["--tracker", f"{local_host}:{port}", "--key", options.key]
        arguments += ["--announce", self._announced]
        arguments += ["--register", options.register] if options.register else []
        self.servers = [
            SupervisedProcess(
                "server", Address(host=options.host, port=number), arguments, environment
            )
            for number in ports
        ]
        self._last_query = time.monotonic()
        self._misses = 0
        self._local_address = Address(host=local_host, port=port)

    @property
    def address(self) -> Address:
        """The address of the tracker for clients."""
        return Address(host=self._announced, port=self.tracker.address.port)

    def __enter__(self) -> Self:
        try:
            self.tracker.start()
            self.tracker.wait()
            for server in self.servers:
                server.start()
            for server in self.servers:
                server.wait()
            self._wait_for_registration()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_registration(self) -> None:
        """Wait until the tracker knows all servers."""
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            with contextlib.suppress(ChameleonError):
                known = queues(self._local_address, timeout=_CHECK_SECONDS)
                if sum(queue.free for queue in known) >= len(self.servers):
                    return
            time.sleep(0.05)
        raise TargetError(
            "the servers do not find their tracker",
            hint="See that --host is an address of this machine.",
        )

    def supervise(self) -> None:
        """Restart server processes that have ended, and a tracker that does not answer."""
        for child in (self.tracker, *self.servers):
            child.supervise()
        now = time.monotonic()
        if now - self._last_query > _CHECK_SECONDS:
            self._last_query = now
            try:
                queues(self._local_address, timeout=1.0)
                self._misses = 0
            except ChameleonError as error:
                self._misses += 1
                if self._misses >= _MISSES:
                    _log.warning("tracker_silent", reason=str(error))
                    self._misses = 0
                    self.tracker.kill()

    def describe(self) -> dict[str, Any]:
        """The addresses and the key of the servers, for other machines."""
        runner = {"name": "rpc", "tracker": str(self.address), "key": self._options.key}
        return {
            "tracker": str(self.address),
            "key": self._options.key,
            "servers": [
                str(attrs.evolve(server.address, host=self._announced)) for server in self.servers
            ],
            "runner": runner,
        }

    def close(self) -> None:
        """End all processes."""
        for child in (*self.servers, self.tracker):
            child.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def find_ports(host: str, first: int, count: int) -> list[int]:
    """Free ports: consecutive ones from ``first`` on, or any if it is 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = []
    # All sockets stay open until the end, so that no port is found twice.
    with contextlib.ExitStack() as stack:
        for port in range(first, first + count) if first else [0] * count:
            bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            if port:
                # A port that was closed a moment ago may be used again.
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                bound.bind((host, port))
            except (OSError, OverflowError) as error:
                raise _cannot_listen(host, port, count, error) from error
            ports.append(int(bound.getsockname()[1]))
    return ports


def _cannot_listen(host: str, port: int, count: int, error: Exception) -> TargetError:
    if not port:
        return TargetError(
            f"nothing can listen on {host}: {_reason(error)}",
            hint="Give --host an address of this machine, such as 127.0.0.1.",
        )
    return TargetError(
        f"port {port} of {host} cannot be listened on: {_reason(error)}",
        hint=f"Choose another --port, with {count} free ones in a row from it on, or "
        "--port 0 for any that are free.",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OverflowError):
        return "there is no such port"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "another program listens on it"
    return getattr(error, "strerror", None) or str(error)


def _external_address() -> str:
    """The address of this machine on the network of its default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: connecting a datagram socket only picks the route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
