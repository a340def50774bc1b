"""Runs a module as a child: ``python -m chameleon_system._processes.launcher PARENT IDLE MODULE``.

The child must request the death signal before its program imports anything, because the parent may
be killed while it does. A function between ``fork`` and ``exec`` (``preexec_fn`` of ``subprocess``)
is not safe if the parent has threads.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import time
from pathlib import Path

from chameleon_system._processes.death_signal import die_with_parent, ignore_terminal

_LOWEST = b"19"


def main() -> None:
    """Request the death signal, and run the module in this process."""
    _, parent, idle, module, *arguments = sys.argv
    die_with_parent(int(parent))
    ignore_terminal()
    if int(idle) or os.sched_getscheduler(0) == os.SCHED_IDLE:  # inherited from the parent
        _lower_priority()
    # ``runpy`` sets the first argument to the module's file, as ``python -m`` does.
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _lower_priority() -> None:
    """Let all other processes compute first, of this session and of others."""
    with contextlib.suppress(OSError):  # some containers allow no change
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # SCHED_IDLE counts within the session only: see sched(7), "The autogroup feature".
    group = Path("/proc/self/autogroup")
    # Kernels without this feature have no such file.
    with contextlib.suppress(OSError), group.open("wb", buffering=0) as session:
        while session.write(_LOWEST) is None:  # the kernel allows ten changes a second
            time.sleep(0.1)


if __name__ == "__main__":
    main()
