"""How good a network is after so many seconds of tuning.

    python benchmarks/seconds.py resnet18
    python benchmarks/seconds.py examples/resnet18.yaml --seconds 30 60 --deliver

Tunes a network once for the longest of the times, with one budget for all of its operators, and
notes when each operator's best time improved. Prints a line of JSON for each time: how many
operators had been timed by then, the sum of their best times as often as each occurs (null until
all have one), and the quality, which is that sum at the end over the sum then. That is what the
kernels take alone; `--deliver` tunes anew for each time, delivers the network, and prints what it
takes as a whole, beside its fastest rival. Seconds are those of choosing a layout, first guesses
and tuning; delivery comes after them.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core._events import BestImproved, RunStarted
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import hookimpl

SECONDS = (30.0, 60.0, 120.0, 300.0)


def main() -> None:
    """Tune the network of the command line and print its quality over seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", help="a built-in network's name, or a pipeline file")
    parser.add_argument("--seconds", type=float, nargs="+", default=SECONDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deliver", action="store_true", help="a run and a network for each time")
    options = parser.parse_args()
    times = sorted(options.seconds)
    with tempfile.TemporaryDirectory(prefix="chameleon-seconds-") as scratch:
        if options.deliver:
            for seconds in times:
                folder = Path(scratch, f"{seconds:g}")
                result = run_pipeline(pipeline_of(options, seconds, folder, compare=True))
                print(json.dumps({"seconds": seconds, **delivered(result)}), flush=True)
            return
        folder = Path(scratch, "run")
        listener = Improvements()
        run_pipeline(pipeline_of(options, times[-1], folder), listeners=[listener])
        for row in quality(listener.notes, weights_of(folder), times):
            print(json.dumps(row), flush=True)


def pipeline_of(
    options: argparse.Namespace, seconds: float, folder: Path, *, compare: bool = False
) -> ResolvedPipeline:
    """The pipeline of the command line with one budget for the whole network."""
    if options.network.endswith((".yaml", ".yml", ".json")):
        document: dict[str, Any] = dict(load_pipeline(options.network).document)
    else:
        document = {
            "model": {"builtin": {"network": options.network, "compare": compare}},
            "target": "native",
            "scheduler": {"name": "gradient"},
            "seed": options.seed,
        }
    batches = {
        name: value
        for name, value in document.get("budget", {}).items()
        if name in {"batch_size", "plan_size", "tasks_at_once"}
    }
    budget = {**batches, "wall_time": seconds, "measurements": None, "scope": "network"}
    return from_dict({**document, "baselines": [], "budget": budget, "output": str(folder)})


@attrs.frozen(kw_only=True)
class Note:
    """An operator's best time from a moment on; both in seconds."""

    at: float
    task: str
    best: float


class Improvements:
    """Notes when an operator's best time improved, in seconds of the budget.

    Those are the seconds that operators were searched, measured and learnt for: reading the network
    and starting are none of them.
    """

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._spent: dict[str, float] = {}
        self._before = 0.0

    @hookimpl
    def chameleon_run_started(self, event: RunStarted) -> None:
        """What choosing a layout took."""
        self._before = float((event.settled or {}).get("wall_seconds", 0.0))

    @hookimpl
    def chameleon_measured(self, event: Any) -> None:
        """The seconds an operator has taken."""
        if event.spent is not None:
            self._spent[event.task] = event.spent.total

    @hookimpl
    def chameleon_batch_measured(self, event: Any) -> None:
        """The same, learning included."""
        if event.spent is not None:
            self._spent[event.task.name] = event.spent.total

    @hookimpl
    def chameleon_best_improved(self, event: BestImproved) -> None:
        """A better configuration of an operator."""
        at = self._before + sum(self._spent.values())
        self.notes.append(Note(at=at, task=event.task, best=event.seconds))


def quality(
    notes: Sequence[Note], weights: Mapping[str, int], times: Sequence[float]
) -> list[dict[str, Any]]:
    """A row for each time, in seconds.

    Args:
        notes: in the order in which they were taken.
        weights: how often each operator occurs in the network.
        times: rising.
    """

    def best_at(seconds: float) -> dict[str, float]:
        return {note.task: note.best for note in notes if note.at <= seconds}

    def network(best: Mapping[str, float]) -> float:
        return sum(weight * best.get(name, math.inf) for name, weight in weights.items())

    final = network(best_at(math.inf))
    rows = []
    for seconds in times:
        best = best_at(seconds)
        total = network(best)
        whole = math.isfinite(total)
        rows.append(
            {
                "seconds": seconds,
                "operators_timed": len(best),
                "of": len(weights),
                "kernels_ms": round(1e3 * total, 3) if whole else None,
                "quality": round(final / total, 3) if whole else None,
            }
        )
    return rows


def weights_of(folder: Path) -> dict[str, int]:
    """How often each operator of a run occurs in its network."""
    with RecordStore.of_run(folder) as store:
        return {stored.task.name: stored.task.weight for stored in store.tasks()}


def delivered(result: RunResult) -> dict[str, Any]:
    """The network of a run: what it takes, its fastest rival, and what was not measured."""
    network = result.network
    return {
        "network_ms": network.latency_seconds and round(1e3 * network.latency_seconds, 3),
        "ratio_to_fastest_rival": network.ratio and round(network.ratio, 3),
        "operators_timed": sum(one.measurements > 0 for one in result.operators),
        "of": len(result.operators),
        "failure": network.failure,
    }


if __name__ == "__main__":
    main()
