"""Ends children and all processes that they started, even processes that left the session.

A child leads its own session. Its descendants are found by their parents, by the session, and by a
token in the environment that they inherit. A process that forks twice and starts another session
still carries the token.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

import psutil

from chameleon_system.processes.stamps import TOKEN, abandoned

_ROUNDS = 10


def kill_tree(pid: int, token: str) -> None:
    """Kill a child, its process group and all descendants, without waiting for their end.

    Args:
        pid: the process id of the child. The child may have ended, but must not be reaped yet.
        token: the child's token in the environment.
    """
    # The child is stopped first, so that it starts no process while its descendants are listed.
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
    victims: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        victims = psutil.Process(pid).children(recursive=True)
    for send in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            send(pid, signal.SIGKILL)
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            victim.kill()
    # New processes may be missing in the list: repeat until no process carries the token.
    for _ in range(_ROUNDS):
        if not _kill_carriers(lambda value: value == token, spare=pid):
            break


def kill_abandoned() -> None:
    """Kill the descendants of children whose parent, a process of this namespace, has ended."""
    _kill_carriers(abandoned, spare=0)


def _kill_carriers(condemned: Callable[[str], bool], *, spare: int) -> int:
    killed = 0
    for process in psutil.process_iter():
        if process.pid in {spare, os.getpid()}:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            token = process.environ().get(TOKEN)
            if token and condemned(token) and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                killed += 1
    return killed
