"""How long a delivered network takes in a session of onnxruntime, against a call of its folder.

`python benchmarks/sessions.py runs/resnet18 runs/bert` exports each network with `--to onnxruntime`
and calls both in turns in one process. The outputs must be equal. Each line has the medians and
minima over the turns, and the median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from chameleon_core._run_files import RunFile
from chameleon_networks._artifact.load import flat, load
from chameleon_networks._export.bundles import write_onnx_file


def measure(run: Path, rounds: int, calls: int) -> str:
    """A line about the network of a run."""
    network: Any = load(run / RunFile.NETWORK)
    with tempfile.TemporaryDirectory() as scratch:
        file, package, *_ = write_onnx_file(run / RunFile.NETWORK, Path(scratch)).files
        options = runpy.run_path(str(package))["session_options"]()
        session = onnxruntime.InferenceSession(str(file), options)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, one.shape).astype(one.dtype) for one in network.inputs]
    feeds = dict(zip([one.name for one in session.get_inputs()], arrays, strict=True))
    for got, wanted in zip(session.run(None, feeds), flat(network(*arrays)), strict=True):
        if not np.array_equal(got, wanted, equal_nan=True):
            raise SystemExit(f"{run}: the outputs differ")

    def turn(call: Callable[[], Any]) -> float:
        started = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - started) / calls

    ways = (lambda: network(*arrays), lambda: session.run(None, feeds))
    turns = []
    for number in range(rounds):
        order = (0, 1) if number % 2 else (1, 0)
        taken = {place: turn(ways[place]) for place in order}
        turns.append((taken[0], taken[1]))
    own, sessions = zip(*turns, strict=True)
    ratio = statistics.median(b / a for a, b in turns)
    words = [
        f"{name} median {statistics.median(seconds) * 1e3:.3f} ms, minimum {min(seconds) * 1e3:.3f}"
        for name, seconds in (("folder", own), ("session", sessions))
    ]
    return f"{run}: {'; '.join(words)}; ratio {ratio:.3f}, of minima {min(sessions) / min(own):.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs with a network")
    parser.add_argument("--rounds", type=int, default=300, help="turns of each")
    parser.add_argument("--calls", type=int, default=2, help="calls of a turn")
    given = parser.parse_args()
    for folder in given.runs:
        print(measure(folder, given.rounds, given.calls))
