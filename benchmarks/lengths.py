"""How fast a network with several sizes of inputs is at sizes that were drawn after its build.

`python benchmarks/lengths.py RUN` draws sizes for each dimension of the network in a run folder,
evenly by their logarithms. `chameleon bench-network RUN --at SIZE` times each in turns with other
frameworks, which run a network of this very size. The output is a table of the sizes, and the
geometric mean and the least of the ratios to the fastest framework in float32.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np


def sizes_of(manifest: dict[str, Any], draws: int, seed: int) -> list[str]:
    """Draw values of ``--at`` for the dimensions of a delivered network.

    Args:
        manifest: the content of the network's ``manifest.json``.
        draws: the number of sizes.
        seed: the seed of the draws.
    """
    rng = np.random.default_rng(seed)
    sizes = []
    for _ in range(draws):
        extents = {}
        for dimension in manifest["dimensions"]:
            buckets = dimension["buckets"]
            if any(pad is not None for *_, pad in dimension["axes"]):
                extents[dimension["name"]] = int(np.exp(rng.uniform(0, np.log(buckets[-1] + 1))))
            else:
                extents[dimension["name"]] = int(rng.choice(buckets))
        sizes.append(",".join(f"{name}={extent}" for name, extent in extents.items()))
    return sizes


def rows_of(results: dict[str, dict[str, Any]]) -> list[tuple[str, float, str, float, float]]:
    """Each size: its name, the network's seconds, the best framework, its seconds, their ratio."""
    rows = []
    for name, result in results.items():
        seconds = {
            own: row["median_seconds"]
            for own, row in result["contenders"].items()
            if row.get("precision", "float32") == "float32"
        }
        ours = seconds.pop("network")
        best = min(seconds, key=seconds.__getitem__)
        rows.append((name, ours, best, seconds[best], seconds[best] / ours))
    return rows


def main() -> None:
    """Draw sizes, time the network, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    manifest = json.loads((asked.run / "network" / "manifest.json").read_text())
    sizes = sizes_of(manifest, asked.draws, asked.seed)
    at = [word for size in dict.fromkeys(sizes) for word in ("--at", size)]
    command = ["chameleon", "bench-network", str(asked.run), "--rounds", str(asked.rounds), *at]
    command += ["--json", "--trust-source"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    rows = rows_of(json.loads(printed)["buckets"])
    for name, ours, best, theirs, ratio in rows:
        print(f"{name:32} {ours * 1e3:8.2f} ms  {best:14} {theirs * 1e3:8.2f} ms  {ratio:.2f}")
    ratios = [ratio for *_, ratio in rows]
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}, of {len(ratios)} sizes")


if __name__ == "__main__":
    main()
