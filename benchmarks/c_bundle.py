"""A delivered network's latency from C++ and from Python: the same kernels, two ways to call them.

`python benchmarks/c_bundle.py RUN` exports the network of a run folder as a bundle for C, builds
its example with g++, and lets the example and the Python loader run by turns, each turn in a
process of its own that infers `--runs` times. It prints the medians and the shortest times of both
over the turns, their ratio turn by turn, the shortest of all turns, which other work on the machine
disturbs least, and whether the outputs are the same bits.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from chameleon_core.run_folder import NETWORK
from chameleon_networks.export.bundles import write_c_bundle
from chameleon_networks.package.package import read_manifest
from delivered_network import inputs_of, latency, loading


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
        theirs = loading(network, folder, arguments.runs, threads, inputs)
        pairs = []
        for turn in range(arguments.turns):
            order = (ours, theirs) if turn % 2 else (theirs, ours)
            found = {id(command): latency(command, folder) for command in order}
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
