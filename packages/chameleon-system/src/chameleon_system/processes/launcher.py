"""Runs a module as a child: ``python -m chameleon_system.processes.launcher PARENT MODULE ...``.

The child itself must ask the kernel for the death signal, which kills it if its parent ends. It
must do so before its program imports anything. The reason is that the parent may be killed while
the child imports or compiles for minutes. A function between ``fork`` and ``exec`` (``preexec_fn``
of ``subprocess``) could also request the signal, but is not safe if the parent has threads.
"""

from __future__ import annotations

import runpy
import sys

from chameleon_system.processes.death_signal import die_with, ignore_terminal


def main() -> None:
    """Request the death signal, and run the module in this process."""
    _, parent, module, *arguments = sys.argv
    die_with(int(parent))
    ignore_terminal()
    # ``runpy`` sets the first argument to the module's file, as ``python -m`` does.
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
