"""Ends children and everything they started, including processes that tried to get away.

A child leads its own session. Its descendants are found by parenthood, by session, and by a token
in the environment that they inherit. One that forks twice and starts a session of its own still
carries the token.
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
    """Kill a child, its process group and all descendants; returns when all were told to.

    Args:
        pid: process id of the child, which may be dead already but must not be reaped.
        token: its environment token.
    """
    # Stopped first, so that it starts nothing while its descendants are being listed.
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
    # A fork bomb may have outrun the list: repeat until nobody carries the token.
    for _ in range(_ROUNDS):
        if not _kill_carriers(lambda value: value == token, spare=pid):
            break


def kill_abandoned() -> None:
    """Kill descendants of children whose parent, a process of this namespace, is gone."""
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
