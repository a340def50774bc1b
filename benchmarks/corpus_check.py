"""One network compiled with first guesses and checked, without tuning: `corpus.py --check`'s child.

    python benchmarks/corpus_check.py PIPELINE ANSWER.json

does what a run does before and after its tuning: sees whether the network can be delivered at all,
names its tasks, takes the first guess of each one's design space, compiles, and compares with the
framework. The answer says how far it came, what ended it, how long each step took, and where the
time of an inference goes. `--defaults` leaves the guesses out: operators have default schedules.
`--before-tuning` ends where a run would begin to measure: verified or refused. Where the pipeline
names a precision, types are chosen as at the end of a run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import traceback
from pathlib import Path
from typing import Any

from chameleon_core._errors import ChameleonError
from chameleon_core._loop.end.delivery import guessed, guesses_of
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._task import Task
from chameleon_core.plugin_api import Delivery, Frontend
from chameleon_networks._frontends.lazy import LazyFrontend
from chameleon_networks._step_times import Stopwatch
from chameleon_system._cores import usable_cores
from corpus_precision import in_types, told


def main() -> None:
    """Check the network of the command line's pipeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("answer", type=Path)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--before-tuning", action="store_true")
    parser.add_argument("--started", type=float, help="when, by time.monotonic; now if left out")
    options = parser.parse_args()
    steps = Stopwatch("start", options.started)
    answer: dict[str, Any] = {}
    try:
        frontend, target = _verified(options.pipeline, steps, answer)
        if not options.before_tuning:
            guesses = not options.defaults
            answer.update(_delivered(options.pipeline, frontend, target, steps, guesses=guesses))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        answer["failure"] = _described(error)
    answer = {"step": steps.step, "seconds": steps.until_now(), **answer}
    options.answer.write_text(json.dumps(answer), encoding="utf-8")


def _verified(file: Path, steps: Stopwatch, answer: dict[str, Any]) -> tuple[Frontend, str]:
    """Do what a run does until a network is verified or refused."""
    pipeline = load_pipeline(file)
    frontend = TaskSource(pipeline).frontend()
    target = TaskSource(pipeline).target()
    steps.begin("check")
    answer["checked"] = frontend.check(target, len(usable_cores()), None) or {}
    return frontend, target


def _delivered(
    file: Path, frontend: Frontend, target: str, steps: Stopwatch, *, guesses: bool
) -> dict[str, Any]:
    """Compile and compare a network with the first guesses of its operators."""
    pipeline = load_pipeline(file)
    threads = len(usable_cores())
    steps.begin("tasks")
    frontend.decide(_NoTrials(target))
    tasks = TaskSource(pipeline).tasks(target, frontend)
    steps.begin("guesses")
    space = pipeline.space.create()
    found: list[Delivery.Winner | None] = [
        guessed(task, guesses_of(space.design_space(task))) for task in tasks if guesses
    ]
    if "precision" in pipeline.sections:
        found = list(in_types(tasks, space))
    steps.begin("deliver")
    with tempfile.TemporaryDirectory(prefix="chameleon-corpus-") as folder:
        delivery = Delivery(
            target=target,
            winners=[winner for winner in found if winner is not None],
            space=space,
            folder=Path(folder, "network"),
            threads=threads,
        )
        delivered = frontend.deliver(delivery)
        network = None if delivered is None else delivered.to_json()
        answer = {"tasks": [task.name for task in tasks], "network": network}
        typed = isinstance(frontend, LazyFrontend) and frontend.work.precision is not None
        if typed and delivery.folder.is_dir():
            steps.begin("precision")
            answer["precision"] = told(frontend.work.network, delivery)
    return answer


class _NoTrials(Frontend.Trials):
    """What a frontend chooses by where nothing is measured."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.measures_hardware = False

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
