"""What runs a network in float32, as it comes and in reduced precision, each with its error.

    python benchmarks/precision.py
    python benchmarks/precision.py --networks resnet50 --ours resnet50=runs/int8 --json figures.json

Everything has a process of its own and the same threads; turns are interleaved. All that have to
be calibrated get the same random inputs, and errors are those of other random inputs: the largest
difference to torch's outputs in float32 over the largest of those. The built-in networks have
random weights, so that their errors are no measure of accuracy. Prints a table in Markdown for
each network.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from chameleon_cli.env import describe
from chameleon_core.run_folder import NETWORK
from chameleon_core.words import in_seconds
from chameleon_networks.delivery.reduced_rivals import reduced_request
from chameleon_networks.delivery.side_by_side import Compared, SideBySide, side_by_side
from chameleon_networks.frameworks import AS_IT_COMES, PRECISIONS
from chameleon_networks.importers.options import BuiltinOptions
from chameleon_networks.importers.sources import BuiltinNetwork
from chameleon_networks.package.package import MANIFEST
from chameleon_networks.running.latency import ROUNDS
from chameleon_system.cores import usable_cores
from chameleon_tvm.types import INT8

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2")
HEADER = ("batch 1", "precision", "median", "least", "turns", "times the best", "error")


def main() -> None:
    """Time the networks of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--precisions", nargs="+", default=(INT8, AS_IT_COMES), choices=PRECISIONS)
    parser.add_argument(
        "--ours",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        type=_named,
        help="a run's folder, or the network in it, of network NAME",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go as well")
    words = parser.parse_args()
    given: dict[str, list[Path]] = defaultdict(list)
    for name, folder in words.ours:
        given[name].append(folder)
    unknown = set(given) - set(words.networks)
    if unknown:
        parser.error(f"--ours names {', '.join(sorted(unknown))}, which --networks does not")
    cpu = describe()["cpu"]
    figures: dict[str, Any] = {
        "processor": cpu["model"],
        "threads": len(usable_cores()),
        "networks": {},
    }
    print(f"{figures['threads']} cores of {figures['processor']}\n")
    for name in words.networks:
        network = BuiltinNetwork(BuiltinOptions(network=name))
        asked = Compared(
            network=network,
            ours=labelled(given[name]),
            names=network.frameworks,
            reduced=partial(reduced_request, network, words.precisions, None),
            threads=figures["threads"],
            rounds=words.rounds,
        )
        found = side_by_side(asked)
        left_out = {**network.left_out, **found.left_out}
        rows = rows_of(found)
        figures["networks"][name] = {"rows": rows, "left_out": left_out}
        print(f"### {name}\n\n{table(rows)}\n", flush=True)
        for one, why in left_out.items():
            print(f"{one} left out: {why}\n", flush=True)
        if words.json is not None:
            words.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def labelled(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders of delivered networks by what they are called in the table."""
    found = {}
    for folder in folders:
        network = folder if (folder / MANIFEST).is_file() else folder / NETWORK
        found[f"Chameleon, {folder.name}"] = network
    return found


def rows_of(found: SideBySide) -> list[dict[str, Any]]:
    """What was timed, the fastest first; seconds are medians over the turns, and the least one.

    On a disturbed machine the least one is nearer to what a quiet one would show.
    """
    rows = [
        {
            "name": name,
            "precision": found.about[name].precision,
            "seconds": statistics.median(seconds),
            "least_seconds": min(seconds),
            "turns": len(seconds),
            "max_relative_error": found.about[name].max_relative_error,
        }
        for name, seconds in found.times.items()
        if seconds
    ]
    return sorted(rows, key=lambda row: row["seconds"])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows in Markdown."""
    cells = [
        (
            row["name"],
            row["precision"],
            in_seconds(row["seconds"], "#.3g"),
            in_seconds(row["least_seconds"], "#.3g"),
            str(row["turns"]),
            f"{row['seconds'] / rows[0]['seconds']:.2f}",
            f"{row['max_relative_error']:.1e}",
        )
        for row in rows
    ]
    lines = [HEADER, ["---"] * len(HEADER), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _named(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, Path(folder)


if __name__ == "__main__":
    main()
