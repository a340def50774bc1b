"""How much longer a network is tuned with a precision search than in float32 alone.

    python benchmarks/precision_seconds.py resnet18 --search bfloat16 int8 --measurements 200
    python benchmarks/precision_seconds.py --read runs/float32 runs/types

Runs the pipeline twice, each in a process of its own, with the same budget for the network, the
same scheduler and the same seed: in float32, then with the types. Shared records are left out, so
that nothing is known beforehand, and nothing is compared with other frameworks. `--read` takes the
folders of two runs that have finished instead.

Prints the seconds of tuning of each run as `chameleon run` counts them (first guesses, and batches
searched for, measured and learnt), the measurements, and how much longer the types take. The
folders' reports and `best.json` have the seconds of each operator and of the delivery.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chameleon_core._dtypes import FLOAT32
from chameleon_core._run_files import RunFile
from chameleon_runs import run_document


def main(arguments: Sequence[str] | None = None) -> None:
    """Make or read two runs, and print how much longer the one with types takes."""
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
        print(summary(*map(result_of, options.read)))
        return
    with tempfile.TemporaryDirectory(prefix="chameleon-precision-") as scratch:
        folder = options.folder or Path(scratch)
        search = {"search": options.search, "max_error": options.max_error}
        runs = {FLOAT32: None, "types": search}
        documents = [document_of(options, folder / name, kind) for name, kind in runs.items()]
        print(summary(*map(run_document, documents)))


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


def result_of(folder: Path) -> dict[str, Any]:
    """The result of a finished run.

    Raises:
        SystemExit: the folder has none.
    """
    try:
        result: dict[str, Any] = json.loads((folder / RunFile.BEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{folder} has no finished run: {error}") from error
    return result


def summary(base: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """How much longer types take, for how many measurements, and what is delivered."""
    seconds, counts = (
        [sum(one[key] for one in result["operators"]) for result in (base, types)]
        for key in ("wall_seconds", "measurements")
    )
    longer, more = (ours[1] / ours[0] for ours in (seconds, counts))
    lines = [f"tuning takes {longer:.2f} times as long for {more:.2f} times the measurements"]
    for took, count, result in zip(seconds, counts, (base, types), strict=True):
        network = result["network"]
        alternatives = sum("alternative_of" in one["task"] for one in result["operators"])
        lines.append(
            f"{network.get('precision', FLOAT32)}: {took:.1f} s of tuning, {count} measurements of "
            f"{len(result['operators'])} tasks, {alternatives} of which are alternatives; "
            f"delivered after {network.get('delivered_seconds') or 0.0:.1f} s"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
