"""How fast a predictor's kernels are beside a whole search's, on networks nothing was learnt from.

    python benchmarks/one_shot/held_out.py FOLDER [--network resnet18 ...] [--model auto]

The networks are those that `plan-cpu.yaml` holds out. Each network's tasks are tuned by several
pipelines, and what these chose is timed in turns by the runner's final comparison: two searches one
after the other would meet the machine at different speeds. A continued call searches nothing twice.

`searched` is the default preset with many measurements, `one-shot` the predictor with eight. A
network without measurements gets the choice of `guessed`, the space's first guess, or of
`predicted`, the predictor's best. Speed is the geometric mean
over tasks of the searched kernel's time over the way's own, weighted by the share of the network's
time.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.round.batch import Config, tuples
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.loop.run import run_pipeline
from chameleon_core.loop.start.tasks import device_of, spaces_of, target_of
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.stages import Archive, Contender, StageRef
from chameleon_core.task import Task
from chameleon_one_shot.dataset.collecting import NetworkTasks
from chameleon_one_shot.dataset.task_file import write_tasks

# What was measured before must not make a search seem quick.
os.environ["CHAMELEON_RECORDS"] = "none"

LAYOUTS = {"resnet18": "NHWC", "mobilenet_v2": "NHWC", "bert_base": "NHWC"}
"""Networks that `plan-cpu.yaml` holds out."""

BATCH = 8
"""The number of candidates of which the predictor's best is the first."""


def ways(model: str, measurements: int) -> dict[str, dict[str, Any]]:
    """The pipelines to compare, without what they tune.

    Args:
        model: of the predictor.
        measurements: of each task in a search.
    """
    one_shot = {"preset": "one-shot", "cost_model": {"name": "one-shot", "model": model}}
    return {
        "searched": {"budget": {"measurements": measurements}},
        "guessed": {"budget": {"measurements": 0}},
        "predicted": {**one_shot, "budget": {"measurements": 0}},
        "one-shot": one_shot,
    }


def pipeline_of(tasks: Path, way: Mapping[str, Any], folder: Path) -> ResolvedPipeline:
    """A way's pipeline for the tasks of a file."""
    document = {
        "preset": "default",
        **way,
        "model": {"tasks": {"file": str(tasks)}},
        "target": "native",
        "baselines": [],
        "scheduler": "round-robin",
        "output": str(folder),
    }
    document["budget"] = {**document.get("budget", {}), "scope": "task"}
    return from_dict(document)


def network_tasks(network: str, folder: Path) -> Sequence[Task]:
    """The tasks of a network, read once."""
    model = {"builtin": {"network": network, "layout": LAYOUTS[network]}}
    pipeline = from_dict({"model": model, "target": "native", "output": str(folder)})
    reader = NetworkTasks(
        folder=folder, target=target_of(pipeline), interruption=Interruption(), say=print
    )
    (tasks,) = reader.of([pipeline])
    return tasks


def recommended(pipeline: ResolvedPipeline, tasks: Sequence[Task]) -> list[Config | None]:
    """The configurations that a network's tasks get if nothing is measured, or None.

    A run of operators without measurements would time several of them, and choose the fastest.
    """
    device, archive = device_of(pipeline, tasks[0].target), Archive()
    return [
        next(
            iter(
                tuples(
                    TaskTuner.of(
                        pipeline, task, space, archive, batch_size=BATCH, device=device
                    ).recommended()
                )
            ),
            None,
        )
        for task, space in zip(tasks, spaces_of(pipeline, tasks, among=True), strict=True)
    ]


def compared(
    pipeline: ResolvedPipeline,
    tasks: Sequence[Task],
    choices: Mapping[str, Sequence[Config | None]],
) -> dict[str, list[float]]:
    """Seconds of what each way chose for each task, timed in turns; infinity where it failed."""
    space = StageRef.of(pipeline.space)
    seconds: dict[str, list[float]] = {name: [] for name in choices}
    with pipeline.runner.create() as runner:
        for place, task in enumerate(tasks):
            chosen = {name: configs[place] for name, configs in choices.items()}
            distinct = list(dict.fromkeys(one for one in chosen.values() if one is not None))
            timed = runner.compare(
                task, [Contender(name="tuned", stage=space, config=one) for one in distinct]
            )
            costs = {one.config: one.cost for one in timed}
            for name, config in chosen.items():
                seconds[name].append(np.inf if config is None else costs[config])
    return seconds


def speed(seconds: Sequence[float], searched: Sequence[float], weights: Sequence[int]) -> float:
    """Geometric mean of searched over own seconds, weighted by shares of the searched network."""
    share = np.array(weights) * np.array(searched)
    return float(np.exp(np.average(np.log(np.array(searched) / np.array(seconds)), weights=share)))


def main() -> None:
    """Search, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--model", default="auto", help="of the predictor: a file or a name")
    parser.add_argument("--measurements", type=int, default=256)
    parser.add_argument("--ways", nargs="+", default=list(ways("", 0)))
    given = parser.parse_args()
    for network in given.network:
        folder = given.folder / network
        tasks = network_tasks(network, given.folder / "tasks")
        file = folder / "tasks.json"
        folder.mkdir(parents=True, exist_ok=True)
        write_tasks(file, tasks)
        pipelines = {
            name: pipeline_of(file, way, folder / name)
            for name, way in ways(given.model, given.measurements).items()
            if name in {"searched", *given.ways}
        }
        choices, results = {}, {}
        for name, pipeline in pipelines.items():
            if pipeline.budget.measurements == 0:
                choices[name], results[name] = recommended(pipeline, tasks), ()
            else:
                results[name] = run_pipeline(pipeline).operators
                choices[name] = [operator.config for operator in results[name]]
        seconds = compared(pipelines["searched"], tasks, choices)
        weights = [task.weight for task in tasks]
        for name, operators in results.items():
            row = {
                "network": network,
                "way": name,
                "tasks": len(tasks),
                "measurements": sum(one.measurements for one in operators),
                "speed": round(speed(seconds[name], seconds["searched"], weights), 4),
                "kernel_ms": round(1e3 * float(np.dot(weights, seconds[name])), 3),
                "search_seconds": round(sum(one.spending.total for one in operators), 1),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
