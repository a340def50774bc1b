"""A delivered network, loaded by Python in a process of its own, which prints its latency."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_LOADER = """
import sys, time
import numpy as np
sys.path.insert(0, sys.argv[1])
from load import load
run = load(sys.argv[1], threads=int(sys.argv[4]))
inputs = [np.load(name) for name in sys.argv[5:]]
seconds = []
outputs = run(*inputs)
for _ in range(int(sys.argv[3])):
    started = time.perf_counter()
    outputs = run(*inputs)
    seconds.append(time.perf_counter() - started)
for place, one in enumerate(outputs if isinstance(outputs, list) else [outputs]):
    np.save(f"{sys.argv[2]}/python{place}.npy", one)
seconds.sort()
print(f"latency {seconds[len(seconds) // 2]} s (the shortest {seconds[0]} s)")
"""


def loading(
    network: Path, outputs: Path, runs: int, threads: int, inputs: Sequence[str]
) -> list[str]:
    """The command of that process.

    Args:
        network: the delivered folder.
        outputs: a folder for the last inference's, ``python0.npy`` and so on.
        runs: inferences that are timed.
        threads: that compute; 0 for the loader's own choice.
        inputs: files with the arrays, in order.
    """
    return [
        sys.executable,
        "-c",
        _LOADER,
        str(network),
        str(outputs),
        str(runs),
        str(threads),
        *inputs,
    ]


def latency(command: list[str], folder: Path) -> tuple[float, float]:
    """Median and least seconds that a process prints."""
    found = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    told = re.search(r"latency (\S+) s \(.* shortest (\S+) s\)", found.stdout)
    if told is None:
        raise SystemExit(f"{command[0]} printed no latency: {found.stdout}")
    return float(told[1]), float(told[2])


def inputs_of(manifest: dict[str, object], folder: Path) -> list[str]:
    """Files of random inputs."""
    rng = np.random.default_rng(0)
    names = []
    for place, one in enumerate(manifest["inputs"]):  # type: ignore[arg-type,var-annotated]
        array = rng.standard_normal(one["shape"])
        if not one["dtype"].startswith("float"):
            array = np.abs(array)  # indices, masks and the like: 0, 1, 2
        np.save(folder / f"x{place}.npy", array.astype(one["dtype"]))
        names.append(str(folder / f"x{place}.npy"))
    return names
