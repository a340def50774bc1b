"""One network compiled with first guesses and checked, without tuning: `corpus.py --check`'s child.

    python benchmarks/corpus_check.py PIPELINE ANSWER.json

does what a run does before and after its tuning: sees whether the network can be delivered at all,
names its tasks, takes the first guess of each one's design space, compiles, and compares with the
framework. The answer says how far it came, what ended it, how long each step took, and where the
time of an inference goes. `--defaults` leaves the guesses out: operators have default schedules.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from chameleon_core.errors import ChameleonError
from chameleon_core.loop.end.delivery import guessed, guesses_of
from chameleon_core.loop.start.tasks import frontend_of, target_of, tasks_of
from chameleon_core.pipeline import load_pipeline
from chameleon_core.stages import Delivery, Trials
from chameleon_core.task import Task
from chameleon_system.cores import usable_cores


def main() -> None:
    """Check the network of the command line's pipeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("answer", type=Path)
    parser.add_argument("--defaults", action="store_true")
    options = parser.parse_args()
    steps = Steps()
    answer: dict[str, Any] = {}
    try:
        answer.update(_checked(options.pipeline, steps, guesses=not options.defaults))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        answer["failure"] = _described(error)
    steps.begin("done")
    answer = {"step": list(steps.seconds)[-1], "seconds": steps.seconds, **answer}
    options.answer.write_text(json.dumps(answer), encoding="utf-8")


class Steps:
    """Where a check is.

    Attributes:
        seconds: wall-clock of each step that was begun, in their order.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._step = ""
        self._since = 0.0

    def begin(self, step: str) -> None:
        """End the step before and begin another."""
        now = time.perf_counter()
        if self._step:
            self.seconds[self._step] = now - self._since
        self._step, self._since = step, now


def _checked(file: Path, steps: Steps, *, guesses: bool) -> dict[str, Any]:
    steps.begin("check")
    pipeline = load_pipeline(file)
    frontend = frontend_of(pipeline)
    target = target_of(pipeline)
    threads = len(usable_cores())
    frontend.check(target, threads, None)
    steps.begin("tasks")
    frontend.settle(_NoTrials(target))
    _, tasks = tasks_of(pipeline, frontend, target)
    steps.begin("guesses")
    space = pipeline.space.create()
    found = [guessed(task, guesses_of(space.design_space(task))) for task in tasks if guesses]
    steps.begin("deliver")
    with tempfile.TemporaryDirectory(prefix="chameleon-corpus-") as folder:
        delivered = frontend.deliver(
            Delivery(
                target=target,
                winners=[winner for winner in found if winner is not None],
                space=space,
                folder=Path(folder, "network"),
                threads=threads,
            )
        )
    return {"tasks": [task.name for task in tasks], "network": delivered}


class _NoTrials(Trials):
    """What a frontend chooses by where nothing is measured."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.live = False

    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        del task, guesses, seconds_to_beat
        return None


def _described(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "hint": getattr(error, "hint", None),
        "refused": isinstance(error, ChameleonError),
        "frames": [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in frames[-4:]],
        "traceback": "".join(traceback.format_exception(error))[-6000:],
    }


if __name__ == "__main__":
    main()
