"""Kills a child process and all its descendants, even those that moved to another session.

Each child process starts a session of its own. Its descendants are found in three ways: as children
of known processes, as members of the session's process group, and by a token. The token is in the
environment variables, which every descendant inherits. So a process that forked twice and started
another session is found, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

import psutil

from chameleon_system._processes.stamps import TOKEN, abandoned, remove_abandoned_folders

_ROUNDS = 10


def kill_tree(pid: int, token: str) -> None:
    """Send SIGKILL to a child, its process group and all descendants, without waiting.

    Args:
        pid: the process id of the child. The child may have ended, but must not be reaped yet.
        token: the value of the environment variable ``TOKEN`` in the child. Descendants inherit it,
            so those that are missing in the list of child processes are found by it.
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


def remove_abandoned() -> None:
    """Remove folders and kill processes that earlier processes of Chameleon left behind.

    The earlier process must have ended, and must have had the same namespace of process ids.
    """
    remove_abandoned_folders()
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
