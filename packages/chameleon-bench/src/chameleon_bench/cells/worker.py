"""A worker process: ``python -m chameleon_bench.cells.worker REGISTRY NUMBER``.

Requests are cells, answers say how each ended; both are lines of JSON.
"""

from __future__ import annotations

import os
import sys

from chameleon_core.cores import usable_cores
from chameleon_core.errors import ChameleonError
from chameleon_core.loop import Interruption, RunInterrupted
from chameleon_core.plugins import Registry, load_factory
from chameleon_core.processes.answering import Answers, Message, requests

from chameleon_bench.cells.core_claims import claim_core
from chameleon_bench.cells.running import run_cell
from chameleon_bench.suites.suite import Cell

ENDED, UNWRITTEN = "ended", "unwritten"
"""Kinds of answers: the cell has a result, or its result cannot be written."""


def main() -> None:
    """Run the cells that are asked for, until the parent closes its side."""
    _, registry, number = sys.argv
    answers = Answers()
    _take_core(int(number))
    made = load_factory(registry)()
    for request in requests():
        answers.send(_answer(Cell.from_json(request), made))


def _take_core(number: int) -> None:
    """Stay on one core: stages ask how many they may use, and no two workers share one."""
    if hasattr(os, "sched_setaffinity"):
        cores = usable_cores()
        core = claim_core(cores)
        os.sched_setaffinity(0, {cores[number % len(cores)] if core is None else core})


def _answer(cell: Cell, registry: Registry) -> Message:
    try:
        result = run_cell(cell, registry=registry, interruption=Interruption())
    except RunInterrupted as error:
        return {"kind": ENDED, "failure": str(error)}
    except ChameleonError as error:
        return {"kind": UNWRITTEN, "failure": str(error)}
    return {"kind": ENDED, "failure": result.failure}


if __name__ == "__main__":
    main()
