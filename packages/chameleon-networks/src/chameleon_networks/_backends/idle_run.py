"""Runs the command line in the folder that standard input names, and imports TVM before.

The process that writes the line exports a torch graph meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

from chameleon_core.api import Registry
from chameleon_core.plugin_api import load_factory
from chameleon_system.api import (
    ChildProcess,
    block_import,
    pause_garbage_collection,
    user_cache_folder,
)

_IMPORTS = (
    "chameleon_cli.api:run_command",
    "chameleon_networks._frontends.bucketed:BucketedFrontend",
)
"""Objects of ``chameleon run`` whose import takes long."""

_STAGES = (("runners", "local"), ("spaces", "auto"), ("cost_models", "one-shot"))
"""The stages of a run without measurements that import what takes long, by kind and name."""

_early: list[ChildProcess] = []
"""The process of ``early_process``, until a delivery takes it."""


def idle_run_process(folder: Path, *, idle: bool = False) -> ChildProcess:
    """A process that runs the pipeline of the folder that its standard input names."""
    if not idle:
        with contextlib.suppress(IndexError):
            return _early.pop()
    return _started(folder, idle=idle)


def _started(folder: Path, *, idle: bool = False) -> ChildProcess:
    words, log_bytes = ["run", "pipeline.yaml"], 1 << 20  # the log begins with faults of records
    return ChildProcess(__name__, words, folder=folder, stdin=PIPE, idle=idle, log_bytes=log_bytes)


@contextlib.contextmanager
def early_process() -> Iterator[None]:
    """Start the process of this context's first ``idle_run_process`` at once."""
    folder = user_cache_folder() / "torch"  # the user's folder may hide modules of libraries
    folder.mkdir(parents=True, exist_ok=True)
    child = _started(folder)
    _early.append(child)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a delivery, perhaps of another thread, took it
            _early.remove(child)
            child.kill()


def wait() -> None:
    """Import modules, and run the command line of this process's arguments when told to."""
    # structlog imports rich, which the run does not need; the run raises an error again.
    with block_import("rich"), pause_garbage_collection(), contextlib.suppress(Exception):
        for name in _IMPORTS:
            load_factory(name)
        for kind, name in _STAGES:
            load_factory(Registry.default().record(kind, name).factory)
    if folder := os.fsdecode(sys.stdin.buffer.readline().rstrip(b"\n")):
        os.chdir(folder)
        runpy.run_module("chameleon_cli", run_name="__main__")


if __name__ == "__main__":
    wait()
