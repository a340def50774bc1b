"""How soon a network of ten small operators is verified, if nothing is measured.

    python benchmarks/ten_operators.py [--runs 3]

Each run has an empty cache and a fresh process for each of these figures, in seconds: `verified` of
`chameleon run` with a torch function, the `first` call of `backends.compile`, and the same call in
a `second` process, which finds the network in the cache. `torch` is the first call of
`torch.compile(backend="eager")`, which compiles nothing: the time of torch's own imports and trace.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn


class TenOperators(nn.Module):
    """Two dense layers, a normalization, and seven operators on each number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of 64 numbers."""
        y = self.norm(torch.relu(self.first(x))) + x
        return torch.softmax((torch.sigmoid(self.second(y)) * y).tanh() - x, -1)


def network() -> tuple[nn.Module, torch.Tensor]:
    """The network in evaluation mode, and an example input."""
    torch.manual_seed(0)  # another process finds only the same weights in the cache
    return TenOperators().eval(), torch.randn(8, 64)


def compile_here(backend: str) -> None:
    """Compile in this process, and print the seconds until the first answer."""
    from chameleon_networks._backends import compile as compiled  # noqa: PLC0415 - not timed

    module, example = network()
    started = time.perf_counter()
    if backend == "eager":
        with torch.inference_mode():
            torch.compile(module, backend=backend, dynamic=False)(example)
    else:
        compiled(module, example)
    print(time.perf_counter() - started)


def seconds(folder: Path) -> dict[str, float]:
    """The figures of one run, in a folder for caches and results."""
    cache = {**os.environ, "CHAMELEON_RECORDS": "none", "XDG_CACHE_HOME": str(folder)}
    pipeline = {
        "model": {"torch": {"source": f"{__file__}:network", "compare": False}},
        "target": "native",
        "budget": {"measurements": 0},
        "baselines": [],
        "output": str(folder / "run"),
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(pipeline), encoding="utf-8")

    def printed(*words: str) -> str:
        command = [sys.executable, *words]
        return subprocess.run(command, env=cache, check=True, capture_output=True, text=True).stdout

    said = re.search(r"verified after ([\d.]+) s", printed("-m", "chameleon_cli", "run", str(file)))
    if said is None:
        raise RuntimeError("the run did not say when the network was verified")
    figures = {"verified": float(said[1])}
    for name, backend in (("first", "chameleon"), ("second", "chameleon"), ("torch", "eager")):
        figures[name] = float(printed(__file__, "--child", backend).split()[-1])
    return figures


def main() -> None:
    """Run, and print a line of JSON for each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        compile_here(given.child)
        return
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as folder:
            figures = seconds(Path(folder))
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
