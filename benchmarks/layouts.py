"""Whole networks in NHWC and in NCHW, with the first guess of every design space as its kernel.

    python benchmarks/layouts.py resnet18 vgg16

Both layouts of a network are compiled without tuning (the templates' first guesses are within a few
per cent of what tuning finds) and timed in turns, each in a process of its own. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Winner
from chameleon_system.cores import usable_cores
from chameleon_tvm.frontends.network_options import BuiltinOptions
from chameleon_tvm.frontends.sources import BuiltinFrontend
from chameleon_tvm.graph.compile import compiled
from chameleon_tvm.graph.kernels import Kernels
from chameleon_tvm.graph.latency import median_seconds
from chameleon_tvm.graph.package import manifest_of, write_package
from chameleon_tvm.graph.processes import delivered_process
from chameleon_tvm.networks.records import NETWORKS
from chameleon_tvm.spaces.auto import AutoSpace
from chameleon_tvm.spaces.options import AutoOptions
from chameleon_tvm.targets import TVMTargets

LAYOUTS = ("NHWC", "NCHW")


def main() -> None:
    """Time the networks of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", choices=tuple(NETWORKS))
    threads = len(usable_cores())
    target = TVMTargets(NoOptions()).resolve("native")
    for network in parser.parse_args().networks:
        print(json.dumps({"network": network, **seconds_of(network, target, threads)}), flush=True)


def seconds_of(network: str, target: str, threads: int) -> dict[str, float | None]:
    """Median seconds of one inference in each layout."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {}
        for layout in LAYOUTS:
            frontend = BuiltinFrontend(BuiltinOptions(network=network, layout=layout))
            folders[layout] = Path(scratch, layout)
            write(frontend, target, threads, folders[layout])
        processes = [
            delivered_process(name, folder, threads=threads) for name, folder in folders.items()
        ]
        try:
            inputs = frontend.samples(np.random.default_rng(0))
            return median_seconds(processes, inputs, threads=threads)
        finally:
            for process in processes:
                process.close()


def write(frontend: BuiltinFrontend, target: str, threads: int, folder: Path) -> None:
    """Compile a network with first guesses into a folder."""
    module, chains = frontend.prepared
    space = AutoSpace(AutoOptions())
    winners = {}
    for task in frontend.tasks(target):
        guesses = space.design_space(task).first_guesses
        if len(guesses):
            config = tuple(int(index) for index in guesses[0])
            winners[task.key] = Winner(task=task, config=config, seconds=0.0)
    kernels = Kernels(winners, space, target)
    executable = compiled(module, chains, kernels, target).executable
    write_package(folder, executable, manifest_of(module, chains, kernels, target, threads))


if __name__ == "__main__":
    main()
