"""A process that runs cells on request: ``python -m chameleon_bench.cells.worker``.

Its first request says how; each one after that is a cell, which writes its own result. Every worker
process has a core, of this suite or of another that runs beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chameleon_system.cores import usable_cores
from chameleon_system.processes.answering import Answers, Message, requests

if TYPE_CHECKING:
    from chameleon_core.plugins.registry import Registry

_held: list[int] = []
"""Descriptors of this process's claims: closing one would give its core back."""


def main() -> None:
    """Run cells until there are no more."""
    answers = Answers()
    asked = requests()
    first = next(asked)
    sys.path[:] = first["sys_path"]
    if hasattr(os, "sched_setaffinity"):
        # Stages ask how many cores they may use; here it is one, and no two workers share it.
        cores = usable_cores()
        core = claim_core(cores)
        os.sched_setaffinity(0, {cores[first["number"] % len(cores)] if core is None else core})
    from chameleon_core.plugins.factory import load_factory  # noqa: PLC0415 - with the core chosen

    registry = load_factory(first["registry"])()
    for cell in asked:
        answers.send(_run(cell, registry))


def _run(cell: Message, registry: Registry) -> Message:
    """Run a cell.

    Returns:
        ``failure``, why it has failed or None; or, where its result cannot be kept, why, under
        ``unwritten``.
    """
    from chameleon_core.errors import ChameleonError  # noqa: PLC0415 - with the core chosen
    from chameleon_core.loop.interruption import Interruption, RunInterrupted  # noqa: PLC0415

    from chameleon_bench.cells.running import run_cell  # noqa: PLC0415
    from chameleon_bench.suites.suite import Cell  # noqa: PLC0415

    try:
        result = run_cell(Cell.from_json(cell), registry=registry, interruption=Interruption())
    except RunInterrupted as error:
        return {"failure": str(error)}
    except ChameleonError as error:
        return {"unwritten": str(error)}
    return {"failure": result.failure}


def claim_core(cores: Sequence[int], folder: Path | None = None) -> int | None:
    """Claim a core until this process ends, however it ends.

    Args:
        cores: ids of the cores to choose from.
        folder: where claims are kept; one of the user's own where None.

    Returns:
        The first core that no living process has claimed, or None where all are claimed or
        claims cannot be kept.
    """
    if folder is None:
        folder = Path(tempfile.gettempdir(), f"chameleon-cores-{os.getuid()}")
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for core in cores:
            claim = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(claim)
                continue
            _held.append(claim)
            return core
    return None


if __name__ == "__main__":
    main()
