"""Kills a child process and all its descendants, even those that moved to another session.

Chameleon finds descendants in three ways: as children of known processes, as members of the child's
process group, and by a token. Every descendant inherits this token in its environment variables.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

import psutil

from chameleon_system._processes.stamps import TOKEN, is_abandoned

_ATTEMPTS = 10


def kill_tree(pid: int, token: str) -> None:
    """Send SIGKILL to a child, its process group and all descendants, without waiting."""
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
    for _ in range(_ATTEMPTS):
        if not _kill_by_token(lambda value: value == token, spare=pid):
            break


def kill_abandoned() -> None:
    """Kill processes that an earlier process of Chameleon left behind.

    The earlier process must have had the same namespace of process ids.
    """
    _kill_by_token(is_abandoned, spare=0)


def _kill_by_token(matches: Callable[[str], bool], *, spare: int) -> int:
    killed = 0
    for process in psutil.process_iter():
        if process.pid in {spare, os.getpid()}:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            token = process.environ().get(TOKEN)
            if token and matches(token) and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                killed += 1
    return killed
