"""Hold Chameleon against TVM's own tuner, `ms.tune_tir`, at the same wall-clock.

`python benchmarks/metaschedule.py examples/resnet18_layers.yaml --layers r1,r8 --seconds 60` lets
MetaSchedule tune each operator until the batch in which the time is up; then `chameleon run` with
the `sketch` space gets the seconds that MetaSchedule really took, and the `template` space gets
`--template-seconds`. All seconds count from the start of the process, imports included. The final
kernels of all three are timed by one clock, in fresh processes, in turns. Printed per operator: the
speeds, their ratios, and after what share of MetaSchedule's time a space had a kernel faster than
MetaSchedule's final one; and the geometric means. `--as-shipped` leaves MetaSchedule's 20-second
import of tensor intrinsics alone; without it that import is mended, in its favour.

An operator takes about twice `--seconds` plus `--template-seconds` plus a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chameleon_core.task import Task
from chameleon_tvm.rivals.launch import time_kernels, tune_with_metaschedule

SPACES = ("sketch", "template")
UNLIMITED = 1_000_000
ROUNDS = 3
FINISH = 5.0
"""Seconds that a run goes on after its budget: the last batch, and timing the best again."""
CLI = [sys.executable, "-m", "chameleon_core"]


def command_json(words: list[str]) -> dict[str, Any]:
    """Run a command that prints one JSON object; its progress goes to our stderr."""
    finished = subprocess.run([*CLI, *words], check=False, stdout=subprocess.PIPE, text=True)
    if finished.returncode not in {0, 5}:
        raise SystemExit(f"chameleon {' '.join(words)} ended with {finished.returncode}")
    return json.loads(finished.stdout)


def tasks_of(pipeline: Path, layers: list[str]) -> tuple[list[Task], float]:
    """The pipeline's tasks, all or the named ones, and seconds until a run knows them."""
    started = time.perf_counter()
    described = command_json(["run", str(pipeline), "--dry-run", "--json"])
    startup = time.perf_counter() - started
    tasks = [Task(**entry["task"]) for entry in described["tasks"]]
    unknown = set(layers) - {task.name for task in tasks}
    if unknown:
        raise SystemExit(f"{pipeline} has no operator {', '.join(sorted(unknown))}")
    return [task for task in tasks if not layers or task.name in layers], startup


def tune(task: Task, space: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Tune one task with `chameleon run`; its result, its wall-clock and when its best improved."""
    entry = {key: value for key, value in task.arguments.items() if value is not None}
    pipeline = {
        "model": {"operators": [{task.operator: {"name": task.name, **entry}}]},
        "target": task.target,
        "space": space,
        "baselines": [],
        "budget": {"measurements": UNLIMITED, "wall_time": f"{max(seconds, 1.0):.1f}s"},
        "output": str(folder / "run"),
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(pipeline), encoding="utf-8")  # JSON is YAML.
    started = time.time()
    result = command_json(["run", str(file), "--fresh", "--json"])
    wall = time.time() - started
    events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
    improved = [
        (event["at"] - started, event["seconds"])
        for event in events
        if event["event"] == "BestImproved"
    ]
    return {**result["operators"][0], "improved": improved, "process_seconds": wall}


def compare(task: Task, options: argparse.Namespace, startup: float) -> dict[str, Any]:
    """One operator by MetaSchedule, the sketch space and the template space."""
    rival = tune_with_metaschedule(
        task,
        threads=options.threads,
        wall_seconds=options.seconds,
        as_shipped=options.as_shipped,
        seed=options.seed,
    )
    if rival["trace"] is None:
        raise SystemExit(f"MetaSchedule found nothing for {task.name}")
    limits = {"sketch": rival["seconds"], "template": options.template_seconds}
    found = {}
    for space in options.spaces:
        with tempfile.TemporaryDirectory() as folder:
            found[space] = tune(task, space, limits[space] - startup - FINISH, Path(folder))
    kernels = [{"space": space, "config": ours["config"]} for space, ours in found.items()]
    theirs, *seconds = time_kernels(
        task, [{"trace": rival["trace"]}, *kernels], threads=options.threads, rounds=ROUNDS
    )
    row: dict[str, Any] = {
        "name": task.name,
        "metaschedule": {
            "wall_seconds": rival["seconds"],
            "trials": rival["trials"],
            "failed": rival["failed"],
            "seconds": theirs,
            "gflops": task.flop / theirs / 1e9,
            "history": rival["history"],
        },
    }
    for (space, ours), mine in zip(found.items(), seconds, strict=True):
        # A search keeps the fastest repeats; the clock that times the final kernels does not.
        clocks = mine / ours["improved"][-1][1]
        reached = next((at for at, best in ours["improved"] if best * clocks <= theirs), None)
        row[space] = {
            "seconds": mine,
            "gflops": task.flop / mine / 1e9,
            "ratio": theirs / mine,
            "config": ours["config"],
            "measurements": ours["measurements"],
            "failed": ours["failed"],
            "spent_seconds": ours.get("spent_seconds"),
            "process_seconds": ours["process_seconds"],
            "improved": ours["improved"],
            "reached_after_seconds": reached,
            "time_share": None if reached is None else reached / rival["seconds"],
        }
    return row


def show(rows: list[dict[str, Any]], spaces: list[str]) -> dict[str, Any]:
    """Print the table; return the geometric means."""
    means: dict[str, Any] = {}
    for space in spaces:
        print(f"\n{space}: GFLOP/s against MetaSchedule's, and seconds until as fast as its final")
        print(
            f"{'operator':<10}{'ours':>8}{'theirs':>8}{'ratio':>8}{'tried':>7}{'trials':>7}"
            f"{'ran':>7}{'wall':>7}{'reached':>9}{'share':>8}"
        )
        for row in rows:
            one, rival = row[space], row["metaschedule"]
            reached, share = one["reached_after_seconds"], one["time_share"]
            print(
                f"{row['name']:<10}{one['gflops']:>8.1f}{rival['gflops']:>8.1f}{one['ratio']:>8.3f}"
                f"{one['measurements']:>7}{rival['trials']:>7}"
                f"{one['process_seconds']:>7.1f}{rival['wall_seconds']:>7.1f}"
                + ("    never" if share is None else f"{reached:>9.1f}{share:>8.3f}")
            )
        means[space] = {"ratio": _mean([row[space]["ratio"] for row in rows])}
        shares = [row[space]["time_share"] for row in rows]
        means[space]["time_share"] = None if None in shares else _mean(shares)
        print(f"geometric mean: ratio {means[space]['ratio']:.3f}", end="")
        share = means[space]["time_share"]
        print(f", share of its time {share:.4f}" if share else ", not reached everywhere")
    return means


def _mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def main() -> None:
    """Parse the command line, compare, print, and perhaps keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--layers", default="", help="names, with commas; all where missing")
    parser.add_argument("--seconds", type=float, default=60.0, help="wall-clock per operator")
    parser.add_argument("--template-seconds", type=float, default=20.0, help="as --seconds")
    parser.add_argument(
        "--spaces", nargs="+", choices=("sketch", "template"), default=["sketch", "template"]
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-shipped", action="store_true")
    parser.add_argument("--json", type=Path, help="also write everything here")
    options = parser.parse_args()
    rows = []
    tasks, startup = tasks_of(options.pipeline, [x for x in options.layers.split(",") if x])
    for task in tasks:
        rows.append(compare(task, options, startup))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    means = show(rows, options.spaces)
    if options.json is not None:
        options.json.write_text(json.dumps({"operators": rows, "geometric_means": means}, indent=1))


if __name__ == "__main__":
    main()
