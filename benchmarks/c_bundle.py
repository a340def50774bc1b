"""A delivered network's latency from C++ and from Python: the same kernels, two ways to call them.

`python benchmarks/c_bundle.py RUN` exports the network of a run folder as a bundle for C, builds
its example with g++, and lets the example and the Python loader run by turns, each turn in a
process of its own that infers `--runs` times. It prints the medians and the shortest times of both
over the turns, their ratio turn by turn, the shortest of all turns, which other work on the machine
disturbs least, and whether the outputs are the same bits.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from chameleon_core.run_folder import NETWORK
from chameleon_tvm.bundle.c_bundle import write_c_bundle
from chameleon_tvm.graph.package import read_manifest

LOADER = """
import sys, time
sys.modules["torch"] = None  # TVM starts faster without it
import numpy as np
sys.path.insert(0, sys.argv[1])
from load import load
run = load(sys.argv[1])
inputs = [np.load(name) for name in sys.argv[4:]]
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


def latency(command: list[str], folder: Path, threads: int) -> tuple[float, float]:
    """Median and least seconds that a process prints."""
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
    found = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
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


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--threads", type=int, help="instead of those that it was tuned with")
    arguments = parser.parse_args()
    network = (arguments.run / NETWORK).absolute()
    manifest = read_manifest(network)
    threads = arguments.threads or manifest["threads"]
    with tempfile.TemporaryDirectory(prefix="chameleon-c-") as made:
        folder = Path(made) / "net"
        write_c_bundle(network, folder, "net")
        compiler = shutil.which("g++") or "c++"
        flags = ["-std=c++17", "-O2", "-L.", "-Wl,-rpath,$ORIGIN", "-o", "example"]
        subprocess.run([compiler, "main.cpp", *flags, "-lnet"], cwd=folder, check=True)
        inputs = inputs_of(manifest, folder)
        runs = str(arguments.runs)
        ours = ["./example", "weights.bin", *inputs, "--runs", runs, "--threads", str(threads)]
        theirs = [sys.executable, "-c", LOADER, str(network), str(folder), runs, *inputs]
        pairs = []
        for turn in range(arguments.turns):
            order = (ours, theirs) if turn % 2 else (theirs, ours)
            found = {id(command): latency(command, folder, threads) for command in order}
            pairs.append((found[id(ours)], found[id(theirs)]))
        same = all(
            (folder / f"output{place}.npy").exists()
            and np.load(folder / f"output{place}.npy").tobytes()
            == np.load(folder / f"python{place}.npy").tobytes()
            for place in range(len(manifest["outputs"]))
        )
    print(f"{threads} threads, {arguments.turns} turns of {arguments.runs} runs")
    for place, what in enumerate(("median", "shortest")):
        both = [(c[place], python[place]) for c, python in pairs]
        ratios = sorted(c / python for c, python in both)
        c, python = (statistics.median(one) for one in zip(*both, strict=True))
        print(f"{what:9} C++ {c * 1e3:.4f} ms, Python {python * 1e3:.4f} ms, ", end="")
        print(f"ratio {statistics.median(ratios):.4f} ({ratios[0]:.4f} to {ratios[-1]:.4f})")
    least = [min(one[1] for one in side) for side in zip(*pairs, strict=True)]
    print(f"{'least':9} C++ {least[0] * 1e3:.4f} ms, Python {least[1] * 1e3:.4f} ms, ", end="")
    print(f"ratio {least[0] / least[1]:.4f}")
    print(f"outputs {'the same bits' if same else 'DIFFER'}")


if __name__ == "__main__":
    main()
