"""Tune a pipeline's operators and hold them against oneDNN and the machine's peak.

`python benchmarks/layers.py examples/resnet18_layers.yaml` prints, per operator, the tuned and the
vendor's GFLOP/s as measured interleaved at the end of the run, their ratio, the share of the FMA
peak measured in the same session, and the geometric mean of the ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import NoOptions
from chameleon_runs import command_json
from chameleon_system._cores import usable_cores
from chameleon_tvm._commands import cpu_measurement
from chameleon_tvm._device.targets import TVMTargets, target_info


def measure(pipeline: Path, threads: int, overrides: list[str], output: str) -> dict[str, Any]:
    """Run the pipeline afresh and put the peak beside every operator."""
    target = TVMTargets(NoOptions()).resolve(f"llvm -mcpu=native -num-cores={threads}")
    peak = cpu_measurement.measure(target, target_info(target)).flops / 1e9
    settings = [word for value in overrides for word in ("--set", value)]
    command = ["run", str(pipeline), "--fresh", "--json", "--output", output, *settings]
    result = command_json(command)
    rows = []
    for operator in result["operators"]:
        flop = operator["gflops"] * operator["tuned_seconds"]
        rows.append(
            {
                **operator,
                "vendor_gflops": flop / operator["vendor_seconds"],
                "ratio": operator["vendor_seconds"] / operator["tuned_seconds"],
                "peak_share": operator["gflops"] / peak,
            }
        )
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    return {
        "threads": threads,
        "fma_peak_gflops": peak,
        "seconds": result["seconds"],
        "geometric_mean_ratio": mean,
        "operators": rows,
    }


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    print(f"FMA peak {result['fma_peak_gflops']:.1f} GFLOP/s, {result['threads']} threads")
    print(
        f"{'operator':28} {'tuned':>8} {'vendor':>8} "
        f"{'ratio':>6} {'% peak':>7} {'meas.':>5} {'s':>6}"
    )
    for row in result["operators"]:
        print(
            f"{row['name']:28} {row['gflops']:8.1f} {row['vendor_gflops']:8.1f} "
            f"{row['ratio']:6.2f} {100 * row['peak_share']:7.1f} {row['measurements']:5d} "
            f"{row['wall_seconds']:6.1f}"
        )
    print(f"geometric mean ratio {result['geometric_mean_ratio']:.3f}, {result['seconds']:.1f} s")


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path, nargs="?", default="examples/resnet18_layers.yaml")
    parser.add_argument("--threads", type=int, default=len(usable_cores()))
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--output", help="keep the run folder here")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        output = arguments.output or folder + "/run"
        result = measure(arguments.pipeline, arguments.threads, arguments.overrides, output)
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
