"""How often the gate for speed is right: `python benchmarks/gate.py RUN --slower 0.1`.

The network of a run folder is compared with itself, `--trials` times, with a margin of 3 %. The
times of the new network are multiplied by 1 + `--slower`. In every other trial, a process that
computes without end runs beside both. The output counts the answers.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._commands.speed_gate import inputs_of, judge
from chameleon_networks._evaluation.processes import NetworkProcess, delivered_process

MARGIN = 0.03


class SlowerProcess(NetworkProcess):
    """A network whose times are longer by a factor."""

    factor = 1.0

    def seconds(self, inputs: Any, *, about: float) -> list[float]:
        """The seconds of each inference, times the factor."""
        return [self.factor * own for own in super().seconds(inputs, about=about)]


@contextlib.contextmanager
def neighbour() -> Any:
    """Run a process that computes without end."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def main() -> None:
    """Run the trials, and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--slower", type=float, default=0.0)
    parser.add_argument("--trials", type=int, default=40)
    asked = parser.parse_args()
    folder = asked.run / "network"
    manifest = read_manifest(folder)
    threads = int(manifest["threads"])
    *_, inputs = inputs_of(manifest, np.random.default_rng(0)).values()
    request = {"role": "delivered", "folder": str(folder)}

    def opened() -> tuple[NetworkProcess, NetworkProcess]:
        new = SlowerProcess("new", request, threads=threads)
        new.factor = 1.0 + asked.slower
        return new, delivered_process("old", folder, threads=threads)

    answers: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for trial in range(asked.trials):
        where = "beside a busy process" if trial % 2 else "alone"
        with neighbour() if trial % 2 else contextlib.nullcontext():
            gate = judge(opened, inputs, margin=MARGIN)
        answers[where][gate.verdict] += 1
        print(f"{where}: {gate}", flush=True)
    for where, counts in answers.items():
        print(f"slower by {asked.slower:.0%}, {where}: {dict(counts)}")


if __name__ == "__main__":
    main()
