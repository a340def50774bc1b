"""A client of TVM's tracker with time limits, which does not import TVM.

The protocol (tvm.rpc.tracker): both sides send a magic number. Then every message is a length
followed by JSON, and every question gets one answer.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import Any

import attrs
from chameleon_core.plugin_api import DeviceLostError, TargetError

from chameleon_runners._rpc.addresses import Address

_MAGIC = 0x2F271
_SERVER_MAGIC = 0xFF271
_MISMATCH = _SERVER_MAGIC + 2
_NUMBER = struct.Struct("<i")
_LONGEST = 1 << 24
_PROXY = "proxy["

_START = (
    "Start one with `chameleon serve`, or with `python -m tvm.exec.rpc_tracker`, and see that its "
    "port can be reached from here."
)


class _Code(IntEnum):
    SUCCESS = 0
    REQUEST = 4
    SUMMARY = 6


@attrs.frozen(kw_only=True)
class Grant:
    """A device that the tracker grants to a client.

    Attributes:
        key: the key that the server accepts, for one session only.
    """

    address: Address
    key: str


@attrs.frozen(kw_only=True)
class Queue:
    """The devices that a tracker has for one key, and the requests that wait for them.

    Attributes:
        servers: the addresses of all servers; a proxy counts once.
        free: the number of servers that wait for work.
        pending: the number of requests that wait for a device.
        proxied: whether some servers are behind a proxy and share its address.
    """

    key: str
    servers: tuple[Address, ...]
    free: int
    pending: int
    proxied: bool = False

    @property
    def devices(self) -> int:
        """The number of devices of the key; a proxy does not report its busy servers."""
        return max(len(self.servers), self.free)


class ServerState(StrEnum):
    """The state of a server."""

    FREE = "free"
    BUSY = "busy"
    GONE = "gone"


def queues(tracker: Address, *, timeout: float) -> list[Queue]:
    """All devices that a tracker knows, by key."""
    try:
        with _conversation(tracker, timeout) as ask:
            answer = ask([_Code.SUMMARY])
    except TimeoutError:
        raise DeviceLostError(f"no tracker answers at {tracker} in time", hint=_START) from None
    try:
        return _queues(_value_of(answer))
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise _no_tracker(tracker, f"its summary cannot be read ({error})") from error


def request(tracker: Address, key: str, *, priority: int, timeout: float) -> Grant:
    """Request a device from a tracker, and wait for it."""
    try:
        with _conversation(tracker, timeout) as ask:
            answer = ask([_Code.REQUEST, key, "", priority])
    except TimeoutError:
        raise _none_free(tracker, key, timeout) from None
    try:
        host, port, match = _value_of(answer)
        return Grant(address=Address(host=str(host), port=int(port)), key=str(match))
    except (TypeError, ValueError) as error:
        raise _no_tracker(tracker, f"its grant cannot be read ({error})") from error


def probe_server(server: Address, *, timeout: float) -> tuple[ServerState, float]:
    """The state of a server, and the seconds until it was connected; infinity if it was not."""
    key = b"client:nobody"
    started = time.perf_counter()
    try:
        with socket.create_connection((server.host, server.port), timeout) as connection:
            latency = time.perf_counter() - started
            connection.sendall(_NUMBER.pack(_SERVER_MAGIC) + _NUMBER.pack(len(key)) + key)
            (code,) = _NUMBER.unpack(_receive(connection, _NUMBER.size, time.monotonic() + timeout))
    except TimeoutError:
        # A connected server is silent during a session.
        return ServerState.BUSY, time.perf_counter() - started
    except OSError:
        return ServerState.GONE, float("inf")
    return (ServerState.FREE if code == _MISMATCH else ServerState.GONE), latency


class _Conversation:
    def __init__(self, tracker: Address, connection: socket.socket, limit: float) -> None:
        self._tracker, self._connection, self._limit = tracker, connection, limit

    def __call__(self, question: list[Any]) -> Any:
        body = json.dumps(question).encode()
        self._connection.sendall(_NUMBER.pack(len(body)) + body)
        (length,) = _NUMBER.unpack(_receive(self._connection, _NUMBER.size, self._limit))
        if not 0 < length <= _LONGEST:
            raise _no_tracker(self._tracker, "it answers in another form")
        try:
            return json.loads(_receive(self._connection, length, self._limit))
        except ValueError as error:
            raise _no_tracker(self._tracker, "it answers in another form") from error


@contextlib.contextmanager
def _conversation(tracker: Address, timeout: float) -> Iterator[_Conversation]:
    limit = time.monotonic() + timeout
    with DeviceLostError.on_os_error(f"no tracker answers at {tracker}", hint=_START):
        connection = socket.create_connection((tracker.host, tracker.port), timeout)
    with connection:
        try:
            connection.sendall(_NUMBER.pack(_MAGIC))
            greeting = _receive(connection, _NUMBER.size, limit)
        except OSError as error:
            problem = "it says nothing" if isinstance(error, TimeoutError) else "it hangs up"
            raise _no_tracker(tracker, problem) from error
        if _NUMBER.unpack(greeting)[0] != _MAGIC:
            raise _no_tracker(tracker, "it answers in another form")
        try:
            yield _Conversation(tracker, connection, limit)
        except TimeoutError:
            raise
        except OSError as error:
            raise DeviceLostError(
                f"the tracker at {tracker} went away: {error.strerror or error}", hint=_START
            ) from error


def _receive(connection: socket.socket, count: int, limit: float) -> bytes:
    data = b""
    while len(data) < count:
        left = limit - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        connection.settimeout(left)
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionResetError("the connection was closed")
        data += piece
    return data


def _value_of(answer: Any) -> Any:
    """The value of an answer whose code says success."""
    code, value = answer
    if code != _Code.SUCCESS:
        raise ValueError(f"it answers {code}")
    return value


def _queues(summary: dict[str, Any]) -> list[Queue]:
    servers: dict[str, list[Address]] = {}
    proxied: set[str] = set()
    for info in summary["server_info"]:
        # "server:key"; the key may hold colons of its own.
        text = str(info["key"]).partition(":")[2]
        host, port = info["addr"]
        proxy = text.startswith(_PROXY) and text.endswith("]")
        keys = text.removeprefix(_PROXY).removesuffix("]").split(",") if proxy else [text]
        for key in filter(None, keys):
            servers.setdefault(key, []).append(Address(host=str(host), port=int(port)))
        proxied.update(keys if proxy else ())
    known = summary["queue_info"]
    return [
        Queue(
            key=key,
            servers=tuple(sorted(servers.get(key, ()), key=str)),
            free=int(known.get(key, {}).get("free", 0)),
            pending=int(known.get(key, {}).get("pending", 0)),
            proxied=key in proxied,
        )
        for key in sorted({*servers, *known})
    ]


def _no_tracker(tracker: Address, problem: str) -> TargetError:
    return TargetError(
        f"{tracker} is no tracker of TVM's RPC: {problem}",
        hint="A server's address goes to `address:`, a tracker's to `tracker:`.",
    )


def _none_free(tracker: Address, key: str, timeout: float) -> DeviceLostError:
    return DeviceLostError(
        f"the tracker at {tracker} had no free device of the key {key!r} for {timeout:.0f} s",
        hint=f"`chameleon devices --tracker {tracker}` shows who is busy.",
    )
