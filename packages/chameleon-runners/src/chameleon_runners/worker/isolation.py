"""What a worker does to itself before it runs anything of a candidate's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however it ends.

    Args:
        parent: process id of the parent; when it is already gone, this process exits.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the call above; then nobody would ever kill us.
    if os.getppid() != parent:
        os._exit(1)


def ignore_terminal() -> None:
    """Ctrl-C is the runner's business; a worker ends when it is told to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def limit_memory(limit: int) -> None:
    """Make allocations beyond ``limit`` bytes fail in this process and its children.

    The limit is on writable private memory (RLIMIT_DATA), which counts what a program
    allocates, but neither libraries nor the address space that GPU drivers reserve.
    Core files are switched off: a crash is an ordinary result here.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def pin(cores: list[int]) -> None:
    """Bind the main thread to some cores; other threads stay where they are.

    TVM gives the main thread all cores back when it starts its pool of threads, so this is
    called before every clock is started, not once.
    """
    if cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(os.getpid(), cores)
