"""How much faster the networks in one folder are than those of the same names in another.

`python benchmarks/folder_pairs.py OLD NEW` times each network that both folders hold, such as the
run folders of two commits. A process loads both networks of a name, and calls them in turns with
random inputs. The output has a line for each network: the median over the turns of the old time
over the new one, the quantiles 0.1 and 0.9, and both medians. The last line has the geometric mean.
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MANIFEST = "manifest.json"


def networks_of(folder: Path) -> dict[str, Path]:
    """The delivered networks of all run folders in a folder, by the names of the runs' parents."""
    found = (path.parent for path in sorted(folder.glob(f"**/network/{MANIFEST}")))
    return {network.relative_to(folder).parts[0]: network for network in found}


def inputs_of(manifest: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Random inputs of a network; integers are 0 or 1, since they may be indices."""
    rng = np.random.default_rng(0)
    inputs = []
    for spec in manifest["inputs"]:
        is_float = "float" in spec["dtype"]
        numbers = (
            rng.standard_normal(spec["shape"]) if is_float else rng.integers(0, 2, spec["shape"])
        )
        inputs.append(numbers.astype(spec["dtype"]))
    return inputs


def median_seconds(network: Any, inputs: list[Any], seconds: float) -> float:
    """The median time of the calls that fit into some seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        started = time.perf_counter()
        network(*inputs)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def compare(old: Path, new: Path, turns: int, seconds: float) -> dict[str, Any]:
    """Time two networks in turns, with the loader of each."""
    networks = [runpy.run_path(str(folder / "load.py"))["load"](folder) for folder in (old, new)]
    inputs = inputs_of(json.loads((new / MANIFEST).read_text()))
    for network in networks:
        median_seconds(network, inputs, 2 * seconds)
    times = np.empty((turns, 2))
    for turn in range(turns):
        for side in (0, 1) if turn % 2 else (1, 0):
            times[turn, side] = median_seconds(networks[side], inputs, seconds)
    low, ratio, high = np.quantile(times[:, 0] / times[:, 1], [0.1, 0.5, 0.9])
    before, after = 1e3 * np.median(times, axis=0)
    return {"ratio": ratio, "low": low, "high": high, "old": before, "new": after}


def main() -> None:
    """Compare each pair in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.12, help="of a network in a turn")
    parser.add_argument("--pair", action="store_true", help="both are networks; print JSON")
    asked = parser.parse_args()
    if asked.pair:
        print(json.dumps(compare(asked.old, asked.new, asked.turns, asked.seconds)))
        return
    before, after = map(networks_of, (asked.old, asked.new))
    names, ratios = sorted(before.keys() & after.keys()), []
    if not names:
        parser.error(f"{asked.old} and {asked.new} hold no delivered network of the same name")
    for name in names:
        command = [sys.executable, __file__, str(before[name]), str(after[name]), "--pair"]
        command += ["--turns", str(asked.turns), "--seconds", str(asked.seconds)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        ratios.append(row["ratio"])
        times = f"{row['old']:9.3f} ms  {row['new']:9.3f} ms"
        print(
            f"{name:24} {row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]  {times}",
            flush=True,
        )
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}, of {len(ratios)} networks")


if __name__ == "__main__":
    main()
