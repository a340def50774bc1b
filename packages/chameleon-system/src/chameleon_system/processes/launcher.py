"""Runs a module as a child: ``python -m chameleon_system.processes.launcher PARENT MODULE ...``.

The child itself has to ask for the death signal, before its program imports anything. A parent may
be killed while a child compiles or imports for minutes. A function between ``fork`` and ``exec``
(``preexec_fn`` of ``subprocess``) could do so too, but is not safe if the parent has threads.
"""

from __future__ import annotations

import runpy
import sys

from chameleon_system.processes.death_signal import die_with, ignore_terminal


def main() -> None:
    """Become the module."""
    _, parent, module, *arguments = sys.argv
    die_with(int(parent))
    ignore_terminal()
    # Which file it is comes from ``runpy``, as with ``python -m``.
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
