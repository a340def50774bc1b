"""Ends workers and everything they started, including processes that tried to get away.

A worker leads its own session. Its descendants are found by parenthood, by session, and by a
token in the environment that they inherit: one that forks twice and starts a session of its own
still carries the token.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

import psutil

from chameleon_runners.scratch import process_stamp, stamp_alive

TOKEN = "CHAMELEON_WORKER"  # noqa: S105 - the name of an environment variable


def worker_token(number: int) -> str:
    """The token of a worker: the runner's process, and a number unique in it."""
    return f"{process_stamp(os.getpid())}:{number}"


def kill_worker(pid: int, token: str) -> None:
    """Kill a worker, its process group and all descendants; returns when all were told to.

    Args:
        pid: process id of the worker, which may be dead already but must not be reaped.
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
    for _ in range(10):
        if not _kill_carriers(lambda found: found == token, spare=pid):
            break


def kill_abandoned() -> None:
    """Kill descendants of workers whose runner is gone."""
    _kill_carriers(lambda found: not stamp_alive(found.partition(":")[0]), spare=0)


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
