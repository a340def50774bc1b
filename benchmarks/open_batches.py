"""Which networks of the corpus have an open batch, and whether their outputs are right in each.

`python benchmarks/open_batches.py` delivers networks of the corpus with the range of batches from 1
to `--most`, with kernels that are not measured, and compares them with torch at each batch. Before
each call, a call of the largest batch leaves NaN in the memory. Cases whose inputs are no batch of
one are left out. With `--libraries`, torchvision may be in a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_networks._frontends.bucketed import BucketedFrontend, make_frontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import network_of
from chameleon_networks._shapes import Buckets
from chameleon_networks.api import load
from corpus_plan import Case, read_plan

HERE = Path(__file__).parent

LARGEST_ERROR = 1e-4
"""The largest difference that is right, relative to the largest output."""


def source_of(case: Case) -> str:
    """The name of the function that makes a case's network."""
    return f"corpus_networks.{case.network}"


def open_shapes(case: Case, most: int) -> dict[str, Any] | None:
    """The shapes of a case's inputs with an open batch; None if it has no batch of one."""
    network = network_of(TorchOptions(source=source_of(case), compare=False))
    pairs = zip(network.input_names(), network.example_inputs, strict=True)
    shapes = {name: array.shape for name, array in pairs}
    if any(shape[:1] != (1,) for shape in shapes.values()):
        return None
    batch = {"range": [1, most], "count": 3, "name": "batch"}
    return {name: [batch, *shape[1:]] for name, shape in shapes.items()}


def deliver(case: Case, shapes: dict[str, Any], folder: Path, limit: float) -> str:
    """Deliver a case into a folder; what went wrong, if anything did."""
    source = {"source": source_of(case), "shapes": shapes, "compare": False}
    pipeline = {
        "model": {"torch": source},
        "target": "native",
        "baselines": [],
        "budget": {"measurements": 0, "scope": "network"},
        "output": str(folder / "run"),
    }
    (folder / "pipeline.yaml").write_text(dump_yaml(pipeline), encoding="utf-8")
    command = ["chameleon", "run", str(folder / "pipeline.yaml")]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"not delivered in {limit:.0f} s"
    # A run without measurements may end with another code than 0.
    if (folder / "run" / "network" / "manifest.json").exists():
        return ""
    words = ended.stderr.strip().splitlines()
    return words[-1] if words else f"code {ended.returncode}"


def largest_error(case: Case, shapes: dict[str, Any], folder: Path, most: int) -> float:
    """The largest relative difference from torch, over all batches."""
    batch = Buckets(range=(1, most), count=3, name="batch")
    options = TorchOptions(
        source=source_of(case),
        shapes={name: (batch, *shape[1:]) for name, shape in shapes.items()},
        compare=False,
    )
    frontend = make_frontend(options)
    assert isinstance(frontend, BucketedFrontend)
    rng, errors = np.random.default_rng(0), []
    with load(folder / "run" / "network") as network:
        largest = frontend.network.with_extents((most,)).samples(rng)
        for count in range(1, most + 1):
            network(*(np.full_like(x, np.nan) if x.dtype.kind == "f" else x for x in largest))
            own = frontend.network.with_extents((count,))
            inputs = own.samples(rng)
            outputs = network(*inputs)
            arrays = list(outputs.values()) if hasattr(outputs, "values") else outputs
            arrays = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
            for array, wanted in zip(arrays, own.framework("torch", 1)(inputs), strict=True):
                scale = max(float(np.abs(wanted).max()), 1e-30)
                shapes_differ = array.shape != wanted.shape
                errors.append(np.inf if shapes_differ else np.abs(array - wanted).max() / scale)
    return float(np.max(errors))


def outcome(case: Case, most: int, limit: float) -> tuple[str, str]:
    """Whether a case is open, whole, wrong, refused or left out, with details."""
    shapes = open_shapes(case, most)
    if shapes is None:
        return "left out", "its inputs are no batch of one"
    with tempfile.TemporaryDirectory() as name:
        problem = deliver(case, shapes, Path(name), limit)
        if problem:
            return "not delivered", problem
        manifest = json.loads(Path(name, "run", "network", "manifest.json").read_text())
        is_open = all(bucket["is_open"] for bucket in manifest["buckets"][1:])
        error = largest_error(case, shapes, Path(name), most)
    if not error <= LARGEST_ERROR:
        return "wrong", f"error {error:.1e}"
    return "open" if is_open else "whole buckets", f"error {error:.1e}"


def environment(case: Case, libraries: Path | None) -> dict[str, str]:
    """The environment of a case. The library transformers does not work beside torchvision."""
    folders = [str(HERE), os.environ.get("PYTHONPATH", "")]
    if libraries is not None and case.source == "torchvision":
        folders.insert(0, str(libraries.absolute()))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def main() -> None:
    """Deliver and compare each case in a process of its own, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--case", help="only this case, in this process; print its outcome")
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--gflop", type=float, default=10.0, help="leave out larger networks")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a delivery")
    parser.add_argument("--libraries", type=Path)
    asked = parser.parse_args()
    cases = [case for case in read_plan(HERE / "corpus.yaml").cases if case.form == "torch"]
    if asked.case:
        [case] = [case for case in cases if case.name == asked.case]
        print(json.dumps(outcome(case, asked.most, asked.limit)))
        return
    counts: Counter[str] = Counter()
    for case in sorted(cases, key=lambda case: case.gflop):
        if case.gflop > asked.gflop or (asked.only and case.name not in asked.only):
            continue
        started = time.perf_counter()
        command = [sys.executable, __file__, "--case", case.name, "--most", str(asked.most)]
        ended = subprocess.run(
            [*command, "--limit", str(asked.limit)],
            env=environment(case, asked.libraries),
            capture_output=True,
            text=True,
            check=False,
        )
        words = (ended.stdout if ended.returncode == 0 else ended.stderr).strip().splitlines()
        last = words[-1] if words else f"code {ended.returncode}"
        kind, details = json.loads(last) if ended.returncode == 0 else ("not delivered", last)
        counts[kind] += 1
        seconds = time.perf_counter() - started
        held_out = " (held out)" if case.held_out else ""
        print(f"{case.name + held_out:36} {kind:14} {seconds:6.0f} s  {details[:300]}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
