"""How many search steps explorers need to the same surrogate score: annealing against PPO.

`python benchmarks/search_steps.py examples/resnet18_layers.yaml --layers r1,r8` measures 192
configurations of each layer's sketch space (a run of `chameleon` with random candidates, kept in
`--folder` and resumed from there). The cost model is fitted to the first 64, 128 and 192 of them in
turn, and after each fit every explorer proposes, with the state that its earlier rounds left it. A
step is one call of the surrogate, for at most one configuration per chain or episode, 128. What
was measured does not count as found. Only spaces of at least 10^6 configurations are looked at.

Printed per explorer, as medians over layers, rounds and seeds: its steps to annealing's final score
(infinite if it does not get there), in what share of the walks it gets there, its final score, and
the seconds of a walk.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._measurement import Measurement
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import (
    Configs,
    DesignSpace,
    Observations,
    Scores,
    StageContext,
    Visited,
)
from chameleon_cost_models._options import XGBoostOptions
from chameleon_cost_models._xgboost_model import XGBoostModel
from chameleon_explorers._annealing import AnnealingExplorer
from chameleon_explorers._options import AnnealingOptions
from chameleon_explorers._ppo.explorer import PPOExplorer
from chameleon_explorers._ppo.options import PPOOptions
from chameleon_explorers._presets import PPO_PAPER, PPO_RELEASE
from chameleon_runs import run_document

MEASURED = (64, 128, 192)
"""Measurements known at each round."""

SMALLEST = 10**6
SAME = 1e-6
"""Scores closer than this are one: trees add single-precision numbers."""

NEVER_LEARNS = {"learning_rate": 0.0}

SAME_START = {"elites": 32}
"""Annealing that starts as many chains at the best measured as PPO starts episodes there."""


def explorers() -> dict[str, tuple[type, Any]]:
    """What is compared: class and options by name; the control walks as PPO and never learns."""
    found: dict[str, tuple[type, Any]] = {"annealing": (AnnealingExplorer, AnnealingOptions())}
    found["annealing elites"] = AnnealingExplorer, AnnealingOptions(**SAME_START)
    found["annealing elites, cold"] = (
        AnnealingExplorer,
        AnnealingOptions(**SAME_START, temperature=0.0),
    )
    for name, preset in {"paper": PPO_PAPER, "release": PPO_RELEASE}.items():
        options = {key: value for key, value in preset.items() if key != "name"}
        found[f"ppo {name}"] = PPOExplorer, PPOOptions(**options)
    found["ppo default"] = PPOExplorer, PPOOptions()
    found["ppo never learning"] = PPOExplorer, PPOOptions(**NEVER_LEARNS)
    return found


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """A layer's space and what was measured in it."""

    task: Task
    space: DesignSpace
    measurements: list[Measurement]


def subject_of(pipeline: Path, layer: str, folder: Path, space: str) -> Subject:
    """Measure what is missing of a layer's configurations."""
    resolved = load_pipeline(pipeline, [f"space={space}"])
    tasks = {
        task.name: task for task in resolved.model.create().tasks(TaskSource(resolved).target())
    }
    if layer not in tasks:
        raise SystemExit(f"{pipeline} has no operator {layer}; it has {', '.join(tasks)}")
    task = tasks[layer]
    arguments = {key: value for key, value in task.arguments.items() if value is not None}
    run = folder / layer / "run"
    document = {
        "model": {"operators": [{task.operator: {"name": task.name, **arguments}}]},
        "target": task.target,
        "space": space,
        "baselines": [],
        # Candidates at random, ranked by the model: they favour none of the explorers compared.
        "explorer": "random",
        "seed": 1,
        "budget": {"measurements": max(MEASURED), "batch_size": 32, "plan_size": 128},
        "output": str(run),
    }
    if not (run / "best.json").exists():
        run_document(document)
    with RecordStore(run / "records.sqlite", read_only=True) as store:
        (stored,) = store.tasks()
        measurements = store.measurements(stored.id)
    made: DesignSpace = resolved.space.create().design_space(task)
    return Subject(task=task, space=made, measurements=measurements)


class Recorder:
    """A surrogate that remembers, call by call, the best unvisited configuration it has scored."""

    def __init__(self, model: XGBoostModel, visited: Visited) -> None:
        self._model, self._visited = model, visited
        self.best: list[float] = []

    def __call__(self, configs: Configs) -> Scores:
        """Scores of configurations."""
        scores = self._model.predict(configs)
        best = self.best[-1] if self.best else -math.inf
        better = np.flatnonzero(scores > best)
        if len(better):
            fresh = better[self._visited.unvisited(configs[better])]
            best = float(scores[fresh].max(initial=best))
        self.best.append(best)
        return scores

    def steps_to(self, score: float) -> float:
        """Calls after the first (the starting points) until a score was reached, or infinity."""
        reached = np.flatnonzero(np.asarray(self.best) >= score - SAME)
        return float(reached[0]) if len(reached) else math.inf


def walks(
    subject: Subject, named: Mapping[str, tuple[type, Any]], seed: int
) -> list[dict[str, Any]]:
    """Every explorer in every round; one row each."""
    space = subject.space
    made = {name: kind(options, _context(subject, seed)) for name, (kind, options) in named.items()}
    rows = []
    for known in MEASURED:
        seen = subject.measurements[:known]
        observations = Observations.of(space, seen)
        visited = Visited(space)
        visited.add(observations.configs)
        model = XGBoostModel(XGBoostOptions(), _context(subject, seed))
        model.fit(observations)
        recorders = {}
        for name, explorer in made.items():
            explorer.observe(observations)
            recorders[name] = recorder = Recorder(model, visited)
            began = time.perf_counter()
            explorer.explore(recorder, visited, 64)
            row = {"layer": subject.task.name, "known": known, "seed": seed, "explorer": name}
            rows.append({**row, "final": recorder.best[-1], "seconds": time.perf_counter() - began})
        goal = recorders["annealing"].best[-1]
        for row in rows[-len(made) :]:
            row["steps"] = recorders[row["explorer"]].steps_to(goal)
    return rows


def _context(subject: Subject, seed: int) -> StageContext:
    return StageContext(
        space=subject.space,
        task=subject.task,
        rng=np.random.default_rng(seed),
        batch_size=64,
        threads=1,
    )


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """One explorer's rows as medians."""
    steps, finals, seconds = ([row[key] for row in rows] for key in ("steps", "final", "seconds"))
    return {
        "walks": len(rows),
        "steps": statistics.median(steps),
        "gets_there": statistics.fmean(map(math.isfinite, steps)),
        "final": statistics.median(finals),
        "seconds": statistics.median(seconds),
    }


def show(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the table."""
    columns = list(next(iter(summaries.values())))
    print(f"{'explorer':20} " + " ".join(columns))
    for name, numbers in summaries.items():
        cells = (f"{numbers[column]:{len(column)}.3g}" for column in columns)
        print(f"{name:20} " + " ".join(cells))


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path, nargs="?", default="examples/resnet18_layers.yaml")
    parser.add_argument("--layers", default="r1,r3,r5,r8")
    parser.add_argument("--space", default="sketch")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--explorers", default="", help="only these, comma-separated")
    parser.add_argument("--folder", type=Path, help="keep measurements and finished walks here")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.explorers.split(",")))
    named = {name: value for name, value in explorers().items() if not wanted or name in wanted}
    named = {"annealing": explorers()["annealing"], **named}
    folder = arguments.folder or Path(tempfile.mkdtemp())
    rows: list[dict[str, Any]] = []
    for layer in arguments.layers.split(","):
        subject = subject_of(arguments.pipeline, layer, folder, arguments.space)
        if subject.space.size < SMALLEST:
            raise SystemExit(f"{layer}: {subject.space.size} configurations are too few")
        for seed in range(arguments.seeds):
            done = folder / layer / f"walks-{seed}-{'-'.join(named)}.json"
            if not done.exists():
                done.write_text(json.dumps(walks(subject, named, seed)))
            rows += json.loads(done.read_text())
    summaries = {name: summary([row for row in rows if row["explorer"] == name]) for name in named}
    show(summaries)
    if arguments.json:
        arguments.json.write_text(json.dumps({"summaries": summaries, "walks": rows}, indent=2))


if __name__ == "__main__":
    main()
