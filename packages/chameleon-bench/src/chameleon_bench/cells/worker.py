"""A process that runs cells on request: ``python -m chameleon_bench.cells.worker``.

Its first request says how; each one after that is a cell, which writes its own result.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from chameleon_system.cores import usable_cores
from chameleon_system.processes.answering import Answers, Message, requests

from chameleon_bench.cells.core_claims import claim_core

if TYPE_CHECKING:
    from chameleon_core.plugins.registry import Registry


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
    from chameleon_core.loop import Interruption, RunInterrupted  # noqa: PLC0415

    from chameleon_bench.cells.running import run_cell  # noqa: PLC0415
    from chameleon_bench.suites.suite import Cell  # noqa: PLC0415

    try:
        result = run_cell(Cell.from_json(cell), registry=registry, interruption=Interruption())
    except RunInterrupted as error:
        return {"failure": str(error)}
    except ChameleonError as error:
        return {"unwritten": str(error)}
    return {"failure": result.failure}


if __name__ == "__main__":
    main()
