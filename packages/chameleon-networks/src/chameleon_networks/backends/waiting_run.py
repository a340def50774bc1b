"""Runs the command line once standard input has a line, and imports TVM before.

The process that writes the line exports a torch graph meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib
import runpy
import sys

_IMPORTS = ("chameleon_cli.run", "chameleon_networks.delivery.bucketed")
"""Modules of ``chameleon run`` that import what takes long."""


def wait() -> None:
    """Import modules, and run the command line of this process's arguments when told to."""
    for name in _IMPORTS:
        with contextlib.suppress(Exception):  # the run raises it again, with its own exit code
            importlib.import_module(name)
    if sys.stdin.readline():
        runpy.run_module("chameleon_cli", run_name="__main__")


if __name__ == "__main__":
    wait()
