"""Layouts of whole networks: one for the whole graph, or one for every edge of it.

    python benchmarks/layouts.py resnet18 vgg16
    python benchmarks/layouts.py --edges --kept seconds.json resnet18 nets.py:make net.onnx

Without `--edges`, both layouts of a built-in network are compiled without tuning (the templates'
first guesses are within a few per cent of what tuning finds) and timed in turns, each in a process
of its own. Prints JSON.

With it, every distinct convolution is timed in every pair of layouts that it can read and write
(NHWC, NCHW, blocks of channels), and so is every move between them. The layouts of all edges that
take the least time together are computed exactly (`layout_labels.py`) and compared with the best
single layout. What lies between convolutions costs the same in every layout here, but it has one.
A network is a built-in one, a function as of a pipeline's `torch`, or an ONNX file. Call it again
with the same `--kept` and `--again`: the least of all repeats counts. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.errors import ChameleonError
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Winner
from chameleon_networks.compile.compile import compiled
from chameleon_networks.compile.kernels import Kernels
from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.delivery.networks import NetworkFrontend
from chameleon_networks.graph.operators import specs_of
from chameleon_networks.graph.owners import owners
from chameleon_networks.importers.builtin.records import NETWORKS
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.importers.options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_networks.importers.sources import BuiltinNetwork, OnnxNetwork, TorchNetwork
from chameleon_networks.package.package import manifest_of, write_package
from chameleon_networks.running.latency import median_seconds
from chameleon_networks.running.processes import delivered_process
from chameleon_system.cores import usable_cores
from chameleon_tvm.device.targets import TVMTargets, target_info
from chameleon_tvm.spaces.auto import AutoSpace
from chameleon_tvm.spaces.options import AutoOptions
from layout_graph import FIRST, LAST, LayoutGraph, Move, Seconds, graph_of
from layout_seconds import Clock

LAYOUTS = (LAST, FIRST)


def main() -> None:
    """Time the networks of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("networks", nargs="+", help=f"{', '.join(NETWORKS)}; with --edges others as well")
    add("--edges", action="store_true", help="a layout for every edge against one for all")
    add("--guesses", type=int, default=3, help="first guesses of each pair of layouts")
    add("--rounds", type=int, default=24, help="turns of each kernel")
    add("--kept", type=Path, help="a file that seconds are kept in")
    add("--again", action="store_true", help="measure what is known once more")
    add("--libraries", type=Path, help="a folder with torchvision, where it is not installed")
    options = parser.parse_args()
    threads = len(usable_cores())
    target = TVMTargets(NoOptions()).resolve("native")
    if options.libraries is not None:
        sys.path.append(str(options.libraries))
    for network in options.networks:
        if options.edges:
            found = edges_of(network_of(network), clock_of(options, target))
        else:
            found = seconds_of(network, target, threads)
        print(json.dumps({"network": network, **found}, indent=1 if options.edges else None))
        sys.stdout.flush()


def network_of(name: str) -> ImportedNetwork:
    """The network that a user names.

    Raises:
        ChameleonError: there is no such network.
    """
    if name in NETWORKS:
        return BuiltinNetwork(BuiltinOptions(network=name))
    if name.endswith(".onnx"):
        return OnnxNetwork(OnnxOptions(source=name))
    if ":" not in name:
        raise ChameleonError(
            f"there is no built-in network {name}", hint=f"Choose one of {', '.join(NETWORKS)}."
        )
    return TorchNetwork(TorchOptions(source=name))


def clock_of(options: argparse.Namespace, target: str) -> Clock:
    """What measures, as the command line says."""
    blocked = f"{FIRST}{target_info(target).lanes('float32')}c"
    return Clock(
        target=target,
        space=AutoSpace(AutoOptions()),
        layouts=(*LAYOUTS, blocked),
        guesses=options.guesses,
        rounds=options.rounds,
        file=options.kept,
        again=options.again,
    )


def edges_of(network: ImportedNetwork, clock: Clock) -> dict[str, Any]:
    """The layouts of a network's edges with the least seconds, against one for all of them."""
    module, chains = prepared_network(network, FIRST)
    specs = specs_of(chains, owners(chains, network.imported, network.graph.locations))
    distinct = dict.fromkeys(chain.spec for chain in chains)
    named = dict(zip(distinct, (spec.name for spec in specs), strict=True))
    graph = graph_of(module, chains, [named[chain.spec] for chain in chains], clock.layouts)
    convolutions = {}
    for one in dict.fromkeys(one.spec for one in graph.convolutions):
        convolutions[one] = clock.convolution(one)
        clock.save()
    moves = {move: clock.move(move) for move in graph.moves()}
    clock.save()
    return compared(graph, convolutions, moves)


def compared(
    graph: LayoutGraph, convolutions: Mapping[Any, Seconds], moves: Mapping[Move, float]
) -> dict[str, Any]:
    """One layout for the graph, and one for each edge of it, by what they were measured to take.

    Returns:
        ``seconds`` of convolutions and moves by layout and ``per edge``; ``bound``, below which no
        choice of layouts comes: each convolution's fastest pair, and moves for nothing; ``gain``,
        the share of the best single layout's seconds that layouts of edges save; ``differ``, the
        convolutions that read or write another layout than that one; ``pairs``, the microseconds
        of each convolution.
    """
    seconds = {name: graph.best(convolutions, moves, only=name)[0] for name in graph.layouts}
    least, chosen = graph.best(convolutions, moves)
    best = min(LAYOUTS, key=lambda name: seconds[name])
    single = graph.best(convolutions, moves, only=best)[1]
    bound = sum(min(convolutions[one.spec].values()) for one in graph.convolutions)
    return {
        "seconds": {**seconds, "per edge": least, "bound": bound},
        "best": best,
        "gain": 1.0 - least / seconds[best],
        "bound_gain": 1.0 - bound / seconds[best],
        "moved": sum(
            one.moves and chosen[one.written] != chosen[one.read] for one in graph.tensors
        ),
        "differ": [
            {
                "convolution": one.name,
                "layouts": [chosen[one.read], chosen[one.written]],
                "microseconds": _micro(convolutions, one, chosen),
                "of_single": _micro(convolutions, one, single),
            }
            for one in graph.convolutions
            if any(chosen[at] != single[at] for at in (one.read, one.written))
        ],
        "pairs": {
            one.name: {
                f"{read}>{written}": round(1e6 * took, 1)
                for (read, written), took in sorted(
                    convolutions[one.spec].items(), key=lambda item: item[1]
                )
            }
            for one in graph.convolutions
        },
    }


def _micro(convolutions: Mapping[Any, Seconds], one: Any, labels: Mapping[str, str]) -> float:
    """Microseconds of a convolution in the layouts of a labelling."""
    return round(1e6 * convolutions[one.spec][labels[one.read], labels[one.written]], 1)


def seconds_of(network: str, target: str, threads: int) -> dict[str, float | None]:
    """Median seconds of one inference in each layout."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {}
        for layout in LAYOUTS:
            made = BuiltinNetwork(BuiltinOptions(network=network, layout=layout))
            folders[layout] = Path(scratch, layout)
            write(made, target, threads, folders[layout])
        processes = [
            delivered_process(name, folder, threads=threads) for name, folder in folders.items()
        ]
        try:
            inputs = made.samples(np.random.default_rng(0))
            return median_seconds(processes, inputs, threads=threads)
        finally:
            for process in processes:
                process.close()


def write(network: BuiltinNetwork, target: str, threads: int, folder: Path) -> None:
    """Compile a network with first guesses into a folder."""
    module, chains = prepared_network(network)
    space = AutoSpace(AutoOptions())
    winners = {}
    for task in NetworkFrontend(network).tasks(target):
        guesses = space.design_space(task).first_guesses
        if len(guesses):
            config = tuple(int(index) for index in guesses[0])
            winners[task.key] = Winner(task=task, config=config, seconds=0.0)
    kernels = Kernels(winners, space, target)
    executable = compiled(module, chains, kernels, target).executable
    write_package(folder, executable, manifest_of(module, chains, kernels, target, threads))


if __name__ == "__main__":
    main()
