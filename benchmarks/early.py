"""How good the code is that live searches had after their first measurements.

    python benchmarks/early.py FOLDER --pipeline default --measurements 24

FOLDER is what a live `chameleon bench` wrote. Its seeds ran one after the other on a machine that
is not equally fast all the time, so what one measured says little about another's best. Here what
each seed had after so many measurements, and what each had in the end, are built again and timed
in turns by the runner's final comparison, and with them what the searches of other folders
(`--known`) had in the end. The best known is the fastest of all of them. Prints a line of JSON for
each task: its microseconds, and the quality of what each seed had after so many measurements, which
is the best known time over its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.load import load_pipeline
from chameleon_core.run_folder import read_store
from chameleon_core.stages import Contender, StageRef
from chameleon_core.task import Task

Config = tuple[int, ...]


def main() -> None:
    """Judge the searches of the command line's folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--pipeline", default="default")
    parser.add_argument("--measurements", type=int, default=24)
    options = parser.parse_args()
    for folder in sorted(options.folder.joinpath("cells").iterdir()):
        others = [known / "cells" / folder.name for known in options.known]
        known = [place / options.pipeline for place in others if place.exists()]
        row = judged(folder / options.pipeline, known, options.measurements)
        print(json.dumps({"task": folder.name, **row}), flush=True)


def judged(folder: Path, known: Sequence[Path], count: int) -> dict[str, object]:
    """One task's searches, a run folder for each seed."""
    runs = sorted(folder.glob("seed-*/"))
    searches = [records_of(run) for run in runs]
    others = [records_of(run) for place in known for run in sorted(place.glob("seed-*/"))]
    early = [best_of(measurements[:count]) for _, measurements in searches]
    final = [best_of(measurements) for _, measurements in [*searches, *others]]
    seconds = compared(runs[0], searches[0][0], list(dict.fromkeys([*early, *final])))
    best = min(seconds.values())
    quality = [best / seconds[config] for config in early]
    return {
        "best_known_us": round(best * 1e6, 1),
        "measurements": count,
        "quality": [round(one, 3) for one in quality],
        "median": round(statistics.median(quality), 3),
    }


def records_of(run: Path) -> tuple[Task, Sequence[Measurement]]:
    """The task of a run folder and its measurements in order."""
    with read_store(run) as store:
        (stored,) = store.tasks()
        return stored.task, store.measurements(stored.id)


def best_of(measurements: Sequence[Measurement]) -> Config:
    """The configuration with the lowest cost."""
    return min((one for one in measurements if one.ok), key=lambda one: one.cost).config


def compared(run: Path, task: Task, configs: Sequence[Config]) -> dict[Config, float]:
    """Seconds of configurations, timed in turns by the runner of a run."""
    pipeline = load_pipeline(run / "pipeline.yaml")
    space = StageRef.of(pipeline.space)
    contenders = [Contender(name="tuned", stage=space, config=config) for config in configs]
    with pipeline.runner.create() as runner:
        measurements = runner.compare(task, contenders)
    return {one.config: one.cost for one in measurements}


if __name__ == "__main__":
    main()
