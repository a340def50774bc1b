"""One network compiled with first guesses and checked, without tuning: `corpus.py --check`'s child.

    python benchmarks/corpus_check.py PIPELINE ANSWER.json

does what a run does before and after its tuning: reads the network, names its tasks, takes the
first guess of each one's design space, compiles, and compares with the framework. The answer says
how far it came, what ended it, and where the time of an inference goes. `--defaults` leaves the
guesses out, so that operators have TVM's default schedules.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from chameleon_core.cores import usable_cores
from chameleon_core.loop.assembly import frontend_of, target_of, tasks_of
from chameleon_core.pipeline import load_pipeline
from chameleon_core.stages import Delivery, SpaceProvider, Trials, Winner
from chameleon_core.task import Task


def main() -> None:
    """Check the network of the command line's pipeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("answer", type=Path)
    parser.add_argument("--defaults", action="store_true")
    options = parser.parse_args()
    answer: dict[str, Any] = {"step": "read", "seconds": {}}
    try:
        _check(options.pipeline, answer, guesses=not options.defaults)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        answer["failure"] = _described(error)
    options.answer.write_text(json.dumps(answer), encoding="utf-8")


def _check(file: Path, answer: dict[str, Any], *, guesses: bool) -> None:
    started = time.perf_counter()

    def reached(step: str) -> None:
        nonlocal started
        answer["seconds"][answer["step"]] = time.perf_counter() - started
        answer["step"], started = step, time.perf_counter()

    pipeline = load_pipeline(file)
    frontend = frontend_of(pipeline)
    target = target_of(pipeline)
    frontend.settle(_NoTrials(target))
    _, tasks = tasks_of(pipeline, frontend, target)
    answer["tasks"] = [task.name for task in tasks]
    reached("guess")
    space = pipeline.space.create()
    winners = [_first_guess(space, task) for task in tasks] if guesses else []
    reached("deliver")
    with tempfile.TemporaryDirectory(prefix="chameleon-corpus-") as folder:
        delivered = frontend.deliver(
            Delivery(
                target=target,
                winners=winners,
                space=space,
                folder=Path(folder, "network"),
                threads=len(usable_cores()),
            )
        )
    reached("done")
    answer["network"] = delivered


class _NoTrials(Trials):
    """What a frontend chooses by where nothing is measured."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.live = False

    def best_seconds(
        self, task: Task, guesses: int, *, rival_seconds: float = float("inf")
    ) -> float | None:
        del task, guesses, rival_seconds
        return None


def _first_guess(space: SpaceProvider, task: Task) -> Winner:
    """The configuration that a search of a task would measure first."""
    design = space.design_space(task)
    config = tuple(int(index) for index in design.start[0])
    return Winner(task=task, config=config, seconds=0.0)


def _described(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "hint": getattr(error, "hint", None),
        "refused": hasattr(error, "hint"),
        "frames": [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in frames[-4:]],
        "traceback": "".join(traceback.format_exception(error))[-6000:],
    }


if __name__ == "__main__":
    main()
