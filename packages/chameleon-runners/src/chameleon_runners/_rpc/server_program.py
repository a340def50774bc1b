"""A server or tracker process: ``python -m chameleon_runners._rpc.server_program ROLE ...``.

TVM's server listens in a thread that dies if a kernel crashes the process of its session. This
program restarts the thread on the same port, and ends kernels that keep running after their client
has gone. It prints one JSON object with the port when it listens, and ends with its parent.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from chameleon_system.api import AMX, AnswerStream, die_with_parent, request_permission
from chameleon_tvm.api import FACTS_FUNCTION, own_facts, tvm

_WATCH_SECONDS = 0.2
_DESERTED_SECONDS = 1.0
"""Seconds after which a session without a client is ended, since a kernel in it hangs."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until the parent process ends or a signal arrives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "tracker"))
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tracker", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--announce", default=None)
    parser.add_argument("--register", default="")
    options = parser.parse_args(arguments)
    # The process of a session is forked from this one, and must not outlive it either.
    own = os.getpid()
    os.register_at_fork(after_in_child=lambda: die_with_parent(own))
    if options.register:
        __import__(options.register)
    (_run_server if options.role == "server" else _run_tracker)(options, AnswerStream())
    return 0


def _run_tracker(options: argparse.Namespace, answers: AnswerStream) -> None:
    from tvm.rpc.tracker import PopenTrackerServerState  # noqa: PLC0415 - needs tornado

    state = PopenTrackerServerState(options.host, options.port, options.port + 1, silent=True)
    answers.send({"port": state.port})
    while state.thread.is_alive():
        time.sleep(_WATCH_SECONDS)


def _run_server(options: argparse.Namespace, answers: AnswerStream) -> None:
    tvm.register_global_func(FACTS_FUNCTION, own_facts, override=True)
    # Sessions are forked from this process, and inherit the permission.
    request_permission(AMX)
    home = Path.cwd()
    state = _listen(options)
    answers.send({"port": state.port})
    last_check = time.monotonic()
    deserted = False
    while True:
        time.sleep(_WATCH_SECONDS)
        if time.monotonic() - last_check > _DESERTED_SECONDS:
            last_check = time.monotonic()
            before, deserted = deserted, _has_deserted_session(options.port)
            if before and deserted:
                _end_sessions()
        if not state.thread.is_alive():
            # A crashed session has ended the thread. TVM had changed the working directory for it.
            os.chdir(home)
            with contextlib.suppress(OSError):
                state.sock.close()
            state = _listen(options)
            answers.send({"restarted": True})


def _listen(options: argparse.Namespace) -> Any:
    from tvm.rpc.server import PopenRPCServerState  # noqa: PLC0415 - a tracker does not need it

    tracker = None
    if options.tracker:
        host, _, port = options.tracker.rpartition(":")
        tracker = (host, int(port))
    return PopenRPCServerState(
        options.host,
        options.port,
        options.port + 1,
        tracker_addr=tracker,
        key=options.key,
        custom_addr=options.announce,
        silent=True,
    )


def _has_deserted_session(port: int) -> bool:
    """Whether the client of any session has closed the connection."""
    with contextlib.suppress(psutil.Error):
        return any(
            connection.status == psutil.CONN_CLOSE_WAIT
            and connection.laddr
            and connection.laddr.port == port
            for connection in psutil.Process().net_connections("tcp")
        )
    return False


def _end_sessions() -> None:
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()


if __name__ == "__main__":
    sys.exit(main())
