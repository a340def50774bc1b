"""Hold Chameleon against TVM's own tuner, `ms.tune_tir`, at the same wall-clock.

`python benchmarks/metaschedule.py examples/resnet18_layers.yaml --layers r1,r8 --append OUT.jsonl`
lets MetaSchedule tune each operator until the batch in which the time (`--seconds`) is up; then
`chameleon run` with the `sketch` space gets the seconds that MetaSchedule really took, and the
`template` space gets `--template-seconds`. All seconds count from the start of the process, imports
included. Each operator's result is appended to the file, one JSON object a line, with commit, date,
seed and what both sides measured, so that operators can be done one at a time, whenever the
machine is quiet: one that the file already has (with the same seed and seconds) is passed over
unless `--again`. `python benchmarks/metaschedule.py --report OUT.jsonl` prints the tables: per
operator the speeds, their ratios, and after what share of MetaSchedule's time a space had a kernel
faster than MetaSchedule's final one; and the geometric means. The last result of an operator and
seed counts.

What makes it fair: both sides get the same operator with the same constant weights to pack, the
same number of threads to build and run with, pinned alike, and the same wall-clock. The winners of
all sides are rebuilt from their records, and timed by one clock, each in fresh processes of its
own, in turns (`ROUNDS` processes each; the time is the median over the processes, of each the
median of its repeats). Each of these processes compares the kernel's output with an independent
reference, and a wrong one ends the comparison.
`--as-shipped` leaves MetaSchedule's 20-second import of tensor intrinsics, which every one of its
builders repeats, alone; without it that import is mended, in its favour.

An operator takes about twice `--seconds` plus `--template-seconds` plus a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chameleon_core._task import Task
from chameleon_runs import command_json, run_document
from chameleon_system._cores import usable_cores
from chameleon_tvm._rivals.launch import time_kernels, tune_with_metaschedule
from corpus_provenance import commit_of

SPACES = ("sketch", "template")
UNLIMITED = 1_000_000
ROUNDS = 5
"""Processes in which each final kernel is timed."""
FINISH = 10.0
"""Seconds that a run goes on after its budget: the last batch, and timing the best again."""


def earlier(file: Path) -> list[dict[str, Any]]:
    """The results in a file, of each operator and seed the last one, in order of operators."""
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
    latest = {(row["name"], row["seed"]): row for row in rows}
    return sorted(latest.values(), key=lambda row: (len(row["name"]), row["name"], row["seed"]))


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


def tune(task: Task, space: str, seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """Tune one task with `chameleon run`; its result, its wall-clock and when its best improved."""
    entry = {key: value for key, value in task.arguments.items() if value is not None}
    pipeline = {
        "model": {"operators": [{task.operator: {"name": task.name, **entry}}]},
        "target": task.target,
        "space": space,
        "seed": seed,
        "baselines": [],
        "budget": {"measurements": UNLIMITED, "wall_time": f"{max(seconds, 1.0):.1f}s"},
        "output": str(folder / "run"),
    }
    started = time.time()
    result = run_document(pipeline, "--fresh")
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
            found[space] = tune(
                task, space, limits[space] - startup - FINISH, options.seed, Path(folder)
            )
    kernels = [{"space": space, "config": ours["config"]} for space, ours in found.items()]
    times = time_kernels(
        task, [{"trace": rival["trace"]}, *kernels], threads=options.threads, rounds=ROUNDS
    )
    theirs, *seconds = map(statistics.median, times)
    row: dict[str, Any] = {
        "name": task.name,
        "commit": commit_of(Path(__file__).parent),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": options.seed,
        "threads": options.threads,
        "asked_seconds": options.seconds,
        "as_shipped": options.as_shipped,
        "metaschedule": {
            "wall_seconds": rival["seconds"],
            "trials": rival["trials"],
            "failed": rival["failed"],
            "seconds": theirs,
            "gflops": task.flop / theirs / 1e9,
            "processes": times[0],
            "history": rival["history"],
        },
    }
    for (space, ours), mine, processes in zip(found.items(), seconds, times[1:], strict=True):
        # A search keeps the fastest repeats; the clock that times the final kernels does not.
        clocks = mine / ours["improved"][-1][1]
        reached = next((at for at, best in ours["improved"] if best * clocks <= theirs), None)
        row[space] = {
            "seconds": mine,
            "gflops": task.flop / mine / 1e9,
            "ratio": theirs / mine,
            "processes": processes,
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


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table for each space and the geometric means."""
    for space in SPACES:
        found = [row for row in rows if space in row]
        if not found:
            continue
        print(f"\n{space}: GFLOP/s against MetaSchedule's, and seconds until as fast as its final")
        print(
            f"{'operator':<9}{'seed':>5}{'ours':>8}{'theirs':>8}{'ratio':>7}{'tried':>7}"
            f"{'trials':>7}{'ran':>7}{'wall':>7}{'reached':>9}{'share':>7}  commit"
        )
        for row in found:
            one, rival = row[space], row["metaschedule"]
            reached, share = one["reached_after_seconds"], one["time_share"]
            print(
                f"{row['name']:<9}{row['seed']:>5}{one['gflops']:>8.1f}{rival['gflops']:>8.1f}"
                f"{one['ratio']:>7.3f}{one['measurements']:>7}{rival['trials']:>7}"
                f"{one['process_seconds']:>7.1f}{rival['wall_seconds']:>7.1f}"
                + ("    never      -" if share is None else f"{reached:>9.1f}{share:>7.3f}")
                + f"  {row['commit']}"
            )
        print(f"geometric mean of {len(found)} ratios: {_mean(found, space, 'ratio'):.3f}", end="")
        shares = [row for row in found if row[space]["time_share"] is not None]
        if shares:
            mean = _mean(shares, space, "time_share")
            print(f"; of the {len(shares)} shares of its time: {mean:.4f}", end="")
        print()


def _mean(rows: list[dict[str, Any]], space: str, what: str) -> float:
    return statistics.geometric_mean(row[space][what] for row in rows)


def main() -> None:
    """Parse the command line; compare and append, or report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path, nargs="?", help="whose operators are tuned")
    parser.add_argument("--report", type=Path, help="print the results of a file and do no more")
    parser.add_argument("--append", type=Path, help="add each result to a file of JSON lines")
    parser.add_argument("--again", action="store_true", help="also what the file already has")
    parser.add_argument("--layers", default="", help="names, with commas; all where missing")
    parser.add_argument("--seconds", type=float, default=40.0, help="wall-clock per operator")
    parser.add_argument("--template-seconds", type=float, default=10.0, help="as --seconds")
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--threads", type=int, default=len(usable_cores()))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-shipped", action="store_true")
    options = parser.parse_args()
    if options.report is not None:
        show(earlier(options.report))
        return
    if options.pipeline is None:
        parser.error("name a pipeline, or a file to --report")
    known = [] if options.append is None or options.again else earlier(options.append)
    done = {
        row["name"]
        for row in known
        if (row["seed"], row["asked_seconds"]) == (options.seed, options.seconds)
    }
    rows = [row for row in known if row["name"] in done]
    tasks, startup = tasks_of(options.pipeline, [x for x in options.layers.split(",") if x])
    for task in tasks:
        if task.name in done:
            continue
        rows.append(compare(task, options, startup))
        line = json.dumps(rows[-1])
        print(line, file=sys.stderr, flush=True)
        if options.append is not None:
            with options.append.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    show(rows)


if __name__ == "__main__":
    main()
