"""What a worker does to itself before it runs anything of a candidate's."""

from __future__ import annotations

import contextlib
import os
import resource


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
