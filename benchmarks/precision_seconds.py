"""How much longer a network is tuned with a precision search than in float32 alone, and where.

    python benchmarks/precision_seconds.py resnet18 --search bfloat16 int8 --measurements 200
    python benchmarks/precision_seconds.py --read runs/float32 runs/types

Runs the pipeline twice, each in a process of its own, with the same budget for the network, the
same scheduler and the same seed: in float32, then with the types. Shared records are left out, so
that nothing is known beforehand, and nothing is compared with other frameworks. `--read` takes the
folders of two runs that have finished instead.

Prints a table of seconds in Markdown and how much longer the types take. *Tuning* is what the
scheduler gave batches for, as `chameleon run` counts it: first guesses, and batches searched for,
measured and learnt. Beside it stand calibration and the steps of the delivery; reading the
network, trying to compile it and choosing its layout are left out, which types change nothing of.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.dtypes import FLOAT32
from chameleon_core.run_folder import BEST, EVENTS

GUESSES, SEARCHING, MEASURING = "first guesses", "searching and learning", "measuring"
OWN, OTHERS = "base type", "alternatives"
TUNING, WHOLE = "**tuning**", "**all of these**"
HEADER = ("seconds", FLOAT32, "with types", "ratio")


@attrs.frozen(kw_only=True)
class RunSeconds:
    """Where the seconds of one run went.

    Attributes:
        tuning: by whether they were spent on alternatives or not, and on what.
        beside: what calibration and each step of the delivery took.
        measured: configurations of the base type's tasks and of alternatives.
        tasks: how many there are of both.
        delivered: wall-clock seconds until the network was delivered; None where it was not.
        latency: seconds of one inference of it; None where it was not timed.
        precision: what it computes in.
    """

    tuning: Mapping[tuple[str, str], float]
    beside: Mapping[str, float]
    measured: Mapping[str, int]
    tasks: Mapping[str, int]
    delivered: float | None
    latency: float | None
    precision: str

    @property
    def total(self) -> float:
        """Seconds of tuning."""
        return sum(self.tuning.values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Make or read two runs, and print where their seconds went."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", nargs="?", default="resnet18", help="a built-in network's name")
    parser.add_argument("--search", nargs="+", default=["bfloat16", "int8"], metavar="TYPE")
    parser.add_argument("--max-error", type=float, default=1e-2)
    parser.add_argument("--measurements", type=int, default=200)
    parser.add_argument("--scheduler", default="gradient")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where run folders are kept; none by default")
    parser.add_argument(
        "--read", nargs=2, type=Path, metavar=("FLOAT32", "TYPES"), help="two run folders"
    )
    options = parser.parse_args(arguments)
    if options.read is not None:
        show(*map(seconds_of, options.read))
        return
    with tempfile.TemporaryDirectory(prefix="chameleon-precision-") as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        search = {"search": options.search, "max_error": options.max_error}
        runs = {FLOAT32: None, "types": search}
        show(*(made(options, folder / name, precision) for name, precision in runs.items()))


def document_of(
    options: argparse.Namespace, folder: Path, precision: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The pipeline of one run; the other one differs in its precision and its folder alone."""
    return {
        "model": {"builtin": {"network": options.network, "compare": False}},
        "target": "native",
        "scheduler": options.scheduler,
        "baselines": [],
        "budget": {"measurements": options.measurements, "scope": "network"},
        "seed": options.seed,
        "output": str(folder),
        **({} if precision is None else {"precision": dict(precision)}),
    }


def made(
    options: argparse.Namespace, folder: Path, precision: Mapping[str, Any] | None
) -> RunSeconds:
    """Run a pipeline and read where its seconds went."""
    file = folder.with_suffix(".yaml")
    file.write_text(json.dumps(document_of(options, folder, precision)), encoding="utf-8")
    command = [sys.executable, "-m", "chameleon_cli", "run", str(file), "--json"]
    # What was measured before must not make a run seem quick.
    environment = {**os.environ, "CHAMELEON_RECORDS": "none"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return seconds_of(folder)


def seconds_of(folder: Path) -> RunSeconds:
    """Where the seconds of a finished run went, as its folder says.

    Raises:
        SystemExit: the folder has no finished run.
    """
    try:
        result = json.loads((folder / BEST).read_text(encoding="utf-8"))
        lines = (folder / EVENTS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SystemExit(f"{folder} has no finished run: {error}") from error
    operators = {
        one["name"]: OTHERS if one["task"].get("alternative_of") else OWN
        for one in result["operators"]
    }
    measured: Counter[str] = Counter()
    for one in result["operators"]:
        measured[operators[one["name"]]] += one["measurements"]
    network = result["network"]
    events = [json.loads(line) for line in lines]
    return RunSeconds(
        tuning=tuning_of(events, operators),
        beside={**_settling(events), **network.get("delivery_seconds", {})},
        measured=measured,
        tasks=Counter(operators.values()),
        delivered=network.get("delivered_seconds"),
        latency=network.get("latency_seconds"),
        precision=network.get("precision", FLOAT32),
    )


def tuning_of(
    events: Sequence[Mapping[str, Any]], operators: Mapping[str, str]
) -> dict[tuple[str, str], float]:
    """Seconds by whose they were and what they were spent on.

    Args:
        events: of one run, in their order, as the log has them.
        operators: whether each task is an alternative, by its name.

    Returns:
        What first guesses took as a whole; of batches what was searched and learnt, and what was
        measured. A task's batches of one configuration before all others are its guesses.
    """
    found: dict[tuple[str, str], float] = defaultdict(float)
    before: dict[str, Mapping[str, float]] = {}
    searched: set[str] = set()
    for event in events:
        if event["event"] != "BatchMeasured":
            continue
        name, spent = event["task"]["name"], event["spent"]
        earlier = before.get(name, {})
        took = {step: spent[step] - earlier.get(step, 0.0) for step in spent}
        before[name] = spent
        if event["count"] > 1:
            searched.add(name)
        thought = took["search"] + took["model"]
        if name in searched:
            found[operators[name], SEARCHING] += thought
            found[operators[name], MEASURING] += took["measure"]
        else:
            found[operators[name], GUESSES] += thought + took["measure"]
    return dict(found)


def _settling(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What finding the types and their ranges took; nothing of float32 alone."""
    started = next(event for event in events if event["event"] == "RunStarted")
    types = (started["settled"] or {}).get("types") or {}
    return {f"settling {name}": seconds for name, seconds in types.get("seconds", {}).items()}


def rows_of(base: RunSeconds, types: RunSeconds) -> list[tuple[str, float, float]]:
    """Rows of the table: what, and its seconds in float32 and with types."""
    rows = [
        (
            f"{whose}: {what}",
            base.tuning.get((whose, what), 0.0),
            types.tuning.get((whose, what), 0.0),
        )
        for whose in (OWN, OTHERS)
        for what in (GUESSES, SEARCHING, MEASURING)
    ]
    rows.append((TUNING, base.total, types.total))
    steps = dict.fromkeys([*types.beside, *base.beside])
    rows += [(name, base.beside.get(name, 0.0), types.beside.get(name, 0.0)) for name in steps]
    whole = [one.total + sum(one.beside.values()) for one in (base, types)]
    return [*rows, (WHOLE, *whole)]


def table(rows: Sequence[tuple[str, float, float]]) -> str:
    """The rows in Markdown."""
    cells = [
        (name, f"{base:.1f}", f"{types:.1f}", f"{types / base:.2f}" if base > 0.0 else "")
        for name, base, types in rows
    ]
    lines = [HEADER, ["---"] * len(HEADER), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(base: RunSeconds, types: RunSeconds) -> str:
    """How much longer types take, for how many measurements, and what is delivered."""
    counts = [sum(one.measured.values()) for one in (base, types)]
    tuned = (
        f"tuning takes {types.total / base.total:.2f} times as long for "
        f"{counts[1] / counts[0]:.2f} times the measurements: {counts[0]} of {base.tasks[OWN]} "
        f"tasks, then {types.measured[OWN]} of {types.tasks[OWN]} and {types.measured[OTHERS]} of "
        f"{types.tasks[OTHERS]} alternatives"
    )
    lines = [tuned]
    for one in (base, types):
        latency = "not timed" if one.latency is None else f"{1e3 * one.latency:.3g} ms"
        after = (
            "not delivered" if one.delivered is None else f"delivered after {one.delivered:.1f} s"
        )
        lines.append(f"{one.precision}: {latency}, {after}")
    return "\n".join(lines)


def show(base: RunSeconds, types: RunSeconds) -> None:
    """Print both."""
    print(f"{table(rows_of(base, types))}\n\n{summary(base, types)}")


if __name__ == "__main__":
    main()
