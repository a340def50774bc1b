"""How fast a predictor's kernels are beside a whole search's, on networks nothing was learnt from.

    python benchmarks/one_shot/held_out.py FOLDER [--network resnet18 ...] [--precision int8]

The networks are those that `plan-cpu.yaml` and the corpus hold out. Some tasks of each network are
drawn at random, by their share of its operations; with `--precision`, these tasks have that dtype.
Several pipelines tune each drawn task, and the runner's final comparison times their choices in
turns: two searches one after the other would meet the machine at different speeds. A continued call
searches nothing twice.

`searched` is the default preset with many measurements, `one-shot` the predictor with eight. A
task without measurements gets the choice of `guessed`, the space's first guess, or of `predicted`,
the predictor's best. Speed is the searched kernel's time over the way's own, as a geometric mean
over the drawn tasks of a network, and then over networks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core._errors import ConfigError
from chameleon_core._loop.interruption import Interruption
from chameleon_core._loop.round.batch import Config, tuples
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._loop.run import run_pipeline
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import from_dict
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._task import Task
from chameleon_core.plugin_api import Archive, Contender, StageRef
from chameleon_one_shot._dataset.collector import NetworkTasks
from chameleon_one_shot._dataset.tasks import write_tasks
from corpus_plan import read_plan

BUILTIN = {
    name: {"builtin": {"network": name, "layout": "NHWC"}}
    for name in ("resnet18", "mobilenet_v2", "bert_base")
}
"""Networks that `plan-cpu.yaml` holds out."""

CORPUS = {
    case.name: {"torch": {"source": f"corpus_networks.{case.network}", "layout": "NHWC"}}
    for case in read_plan(Path(__file__).parents[1] / "corpus.yaml").cases
    if case.held_out and case.form == "torch"
}
"""Networks that the corpus holds out."""

NETWORKS = BUILTIN | CORPUS

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
        "output": str(folder),
    }
    document["budget"] = {**document.get("budget", {}), "scope": "task"}
    return from_dict(document)


def network_tasks(network: str, precision: str | None, folder: Path) -> list[Task]:
    """The tasks of a network in a precision, read once."""
    document = {"model": NETWORKS[network], "target": "native", "output": str(folder)}
    pipeline = from_dict({**document, "precision": precision})
    reader = NetworkTasks(
        folder=folder, target=TaskSource(pipeline).target(), interruption=Interruption(), say=print
    )
    (tasks,) = reader.of([pipeline])
    tasks = [task for task in tasks if precision in {None, task.arguments.get("dtype")}]
    if not tasks:
        raise ConfigError(f"no operator has a kernel in {precision}")
    return tasks


def drawn(tasks: Sequence[Task], count: int) -> list[Task]:
    """Distinct tasks, each with a probability that grows with its share of the operations.

    The largest of log(share) plus Gumbel noise are a draw without replacement (Kool et al., ICML
    2019), and a larger draw begins with a smaller one.
    """
    shares = np.array([task.weight * task.flop for task in tasks])
    noise = np.random.default_rng(0).gumbel(size=len(tasks))
    with np.errstate(divide="ignore"):
        order = np.argsort(-(np.log(shares) + noise))
    return [tasks[place] for place in order[:count]]


def recommended(pipeline: ResolvedPipeline, task: Task) -> Config | None:
    """The configuration that a network's task gets if nothing is measured, or None.

    A run of operators without measurements would time several of them, and choose the fastest.
    """
    (space,) = TaskSource(pipeline).spaces([task], among=True)
    tuner = TaskTuner.of(
        pipeline,
        task,
        space,
        Archive(),
        batch_size=BATCH,
        device=TaskSource(pipeline).device(task.target),
    )
    return next(iter(tuples(tuner.recommended())), None)


def compared(
    pipeline: ResolvedPipeline, task: Task, choices: Mapping[str, Config | None]
) -> dict[str, float]:
    """Seconds of each way's choice, timed in turns; infinity for none, and for a failure."""
    space = StageRef.of(pipeline.space)
    distinct = [config for config in dict.fromkeys(choices.values()) if config is not None]
    contenders = [Contender(name="tuned", stage=space, config=config) for config in distinct]
    with pipeline.runner.create() as runner:
        seconds = {timed.config: timed.cost for timed in runner.compare(task, contenders)}
    return {way: math.inf if config is None else seconds[config] for way, config in choices.items()}


def judged(task: Task, ways: Mapping[str, dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The speed of each way's choice for a task, and how long its search took."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "task.json"
    write_tasks(file, [task])
    choices, rows = {}, {}
    for name, way in ways.items():
        pipeline = pipeline_of(file, way, folder / name)
        if pipeline.budget.measurements == 0:
            choices[name], rows[name] = recommended(pipeline, task), {}
        else:
            (operator,) = run_pipeline(pipeline).operators
            choices[name] = operator.config
            rows[name] = {
                "measurements": operator.measurements,
                "search_seconds": round(operator.spending.total, 1),
            }
    seconds = compared(pipeline, task, choices)
    for name, row in rows.items():
        row["milliseconds"] = round(1e3 * seconds[name], 4)
        row["speed"] = round(seconds["searched"] / seconds[name], 4)
    return {"task": task.name, "ways": rows}


def main() -> None:
    """Search, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--precision", choices=("int8", "bfloat16", "float16"))
    parser.add_argument("--draws", type=int, default=1, help="tasks of each network")
    parser.add_argument("--model", default="auto", help="of the predictor: a file or a name")
    parser.add_argument("--measurements", type=int, default=256)
    parser.add_argument("--ways", nargs="+", default=list(ways("", 0)))
    given = parser.parse_args()
    # What was measured before must not make a search seem quick.
    os.environ["CHAMELEON_RECORDS"] = "none"
    chosen = {
        name: way
        for name, way in ways(given.model, given.measurements).items()
        if name in {"searched", *given.ways}
    }
    logarithms = {name: [] for name in chosen}
    for network in given.network:
        try:
            tasks = network_tasks(network, given.precision, given.folder / "tasks")
        except ConfigError as error:
            print(f"{network} is left out: {error}", flush=True)
            continue
        rows = []
        for task in drawn(tasks, given.draws):
            rows.append(judged(task, chosen, given.folder / network / task.key))
            print(json.dumps({"network": network, **rows[-1]}), flush=True)
        for name, values in logarithms.items():
            values.append(np.mean(np.log([row["ways"][name]["speed"] for row in rows])))
    for name, values in logarithms.items():
        speeds = np.exp(values)
        mean, least = np.exp(np.mean(values)), speeds.min()
        print(f"{name}: {mean:.3f} on {len(speeds)} networks, {least:.3f} on the slowest")


if __name__ == "__main__":
    main()
