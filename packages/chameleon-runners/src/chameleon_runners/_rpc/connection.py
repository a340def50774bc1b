"""Connects to a server of TVM's RPC with a time limit, which TVM's own client does not have."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from chameleon_core.plugin_api import DeviceLostError, TargetError
from chameleon_tvm.api import meaning, telling_line

from chameleon_runners._rpc.addresses import Address

_OTHER_KEY = "cannot find server that matches key"
_NOT_CONNECTED = "sock.Connect(addr)"
_WAITED_FOR = "already have key"


class WrongKeyError(TargetError):
    """A server does not accept the key that the client sent."""


def close_session(session: Any) -> None:
    """Close a session, so that other clients can use the device."""
    # Errors of the server no longer matter.
    with contextlib.suppress(Exception):
        session.get_function("CloseRPCConnection")()


def connect(address: Address, key: str, *, lifetime: float, deadline: float) -> Any:
    """Open a session with a server, which ends it after ``lifetime`` seconds.

    A thread opens the session, since TVM waits without limit for a silent server; ``deadline`` is
    the longest wait in seconds.
    """
    from tvm import rpc  # noqa: PLC0415 - builders do not need it

    name = f"{address.host}:{address.port}"
    sessions: list[Any] = []
    errors: list[Exception] = []
    timed_out = threading.Event()
    # This lock ensures that either the waiting thread takes the session, or the connecting thread
    # closes it.
    handover = threading.Lock()

    def attempt() -> None:
        try:
            session = rpc.connect(address.host, address.port, key, session_timeout=lifetime)
        except Exception as error:  # noqa: BLE001 - the waiting thread raises it
            errors.append(error)
            return
        with handover:
            if not timed_out.is_set():
                sessions.append(session)
                return
        close_session(session)

    thread = threading.Thread(target=attempt, daemon=True, name=f"connect {name}")
    thread.start()
    thread.join(max(0.1, deadline))
    with handover:
        if sessions:
            return sessions[0]
        timed_out.set()
    if not errors:
        raise DeviceLostError(
            f"{name} accepts connections but does not answer for {deadline:.0f} s",
            hint="It is busy with someone else's session, or its listening thread died: see "
            "`chameleon devices`, or restart the server. Behind a proxy: it is not registered "
            f"there with the key {key!r}.",
        )
    raise _refused(name, errors[0], key) from errors[0]


def _refused(name: str, error: Exception, key: str) -> Exception:
    text = str(error)
    if "is not TVM RPC server" in text:
        return TargetError(
            f"{name} is no server of TVM's RPC",
            hint="Give the address of `python -m tvm.exec.rpc_server` or of `chameleon serve`; a "
            "tracker's goes to `tracker:`.",
        )
    if _OTHER_KEY in text:
        return WrongKeyError(
            f"the server at {name} does not answer to the key {key!r}",
            hint="Give its own `key:`; a server that belongs to a tracker is reached through it.",
        )
    if _WAITED_FOR in text:
        return DeviceLostError(
            f"another client already waits at the proxy {name} for a server with the key {key!r}",
            hint="See that the server runs, and start it again with --through-proxy if not. A "
            "proxy has one client of a key wait at a time: give each server a key of its own.",
        )
    if _NOT_CONNECTED in text:
        return DeviceLostError(
            f"no server answers at {name}: {_why_not(name)}",
            hint="Start one there with `chameleon serve`, or with `python -m tvm.exec.rpc_server`, "
            "and see that its port can be reached from here.",
        )
    meant = meaning(error, name)
    if meant is not error:
        return meant
    return DeviceLostError(
        f"{name} cannot be connected to: {telling_line(error)}",
        hint="See that the server runs and that its port can be reached from here.",
    )


def _why_not(name: str) -> str:
    """The reason why a connection fails, which TVM's error does not contain."""
    host, _, port = name.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except OSError as error:
        return error.strerror or str(error)
    return "it did not answer a moment ago"
