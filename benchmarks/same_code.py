"""Whether a change left generated code as it was: digests of kernels and of whole networks.

`python benchmarks/same_code.py` prints one line for each of ResNet-18's layers, which has a digest
of its first guess (loops and assembly), and one for each of ten networks with first guesses, which
has digests of the delivered library and of its weights. A change of the code's structure prints
the very same lines on the same machine. The lines of another version come from the `chameleon` of
its environment: `--command FOLDER/bin/chameleon`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

# What was measured before must not make a kernel another one.
os.environ["CHAMELEON_RECORDS"] = "none"

LAYERS = Path(__file__).parents[1] / "examples" / "resnet18_layers.yaml"
LISTED = 8
"""Operators of a run that get listings: those that take longest."""
NETWORKS = (
    *("alexnet_small", "vgg_small", "resnet_small", "resnet_bottleneck_small"),
    *("mobilenet_small", "bert_small", "resnet18", "resnet50", "mobilenet_v2", "bert_base"),
)


def digest(files: list[Path]) -> str:
    """The digest of what is in some files, in their order."""
    contents = hashlib.sha256()
    for file in files:
        contents.update(file.read_bytes())
    return contents.hexdigest()[:16]


def run(command: str, pipeline: dict[str, Any], file: Path) -> None:
    """Write a pipeline file and run it.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    file.write_text(json.dumps(pipeline), encoding="utf-8")  # JSON is YAML
    subprocess.run([command, "run", str(file), "--json"], check=True, capture_output=True)


def _batches(operators: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(operators), LISTED):
        yield operators[start : start + LISTED]


def layer_lines(command: str, folder: Path) -> Iterator[str]:
    """A line for each layer."""
    operators = YAML(typ="safe").load(LAYERS)["model"]["operators"]
    for number, group in enumerate(_batches(operators)):
        output = folder / f"layers{number}"
        pipeline = {
            "model": {"operators": group},
            "target": "native",
            "budget": {"measurements": 1},
            "output": str(output),
        }
        run(command, pipeline, output.with_suffix(".yaml"))
        for listing in sorted(output.glob("listings/*")):
            yield f"{listing.name} {digest(sorted(listing.iterdir()))}"


def network_line(command: str, name: str, folder: Path) -> str:
    """The line of a network with its spaces' first guesses."""
    output = folder / name
    pipeline = {
        "model": {
            "builtin": {"network": name, "compare": False, "layout": "NHWC", "in_place": False}
        },
        "target": "native",
        "budget": {"measurements": 0},
        "output": str(output),
    }
    run(command, pipeline, folder / f"{name}.yaml")
    parts = (digest([output / "network" / part]) for part in ("network.so", "weights.bin"))
    return " ".join([name, *parts])


def main() -> None:
    """Parse the arguments, build, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="*", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--command", default=str(Path(sys.executable).parent / "chameleon"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in layer_lines(arguments.command, Path(folder)):
            print(line, flush=True)
        for name in arguments.networks:
            print(network_line(arguments.command, name, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
