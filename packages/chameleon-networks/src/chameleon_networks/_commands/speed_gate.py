"""Judges whether a network is slower than another one: ``chameleon bench-network --against``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
from chameleon_cli.api import results_alone
from chameleon_core.api import RunFile, RunView
from chameleon_core.plugin_api import Arrays, ConfigError, ExitCode, RunFolderError

from chameleon_networks._artifact.writer import MANIFEST, read_manifest
from chameleon_networks._commands.network_times import Size, sizes_of
from chameleon_networks._commands.runs import delivered_in, network_of, threads_of
from chameleon_networks._comparison.gate import Gate, judge
from chameleon_networks._evaluation.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
)

NETWORK = "the network"


@attrs.frozen(kw_only=True, eq=False)
class _Timed:
    """Inputs for which two networks are timed.

    Attributes:
        inputs: The inputs of one inference.
        size: The size of the inputs, with the network that frameworks run; None without a run.
    """

    inputs: Arrays
    size: Size | None = None


def gates(
    folder: Path, against: str, *, margin: float, at: Sequence[str], trust_source: bool
) -> Mapping[str, Gate]:
    """Judge a network against another folder's network, or against a framework.

    Args:
        folder: A run folder, or the folder of a delivered network.
        against: Another such folder, or the name of a framework.
        margin: The share of time by which the network may be slower.
        at: Sizes of inputs, as ``network_times.Timing.at`` has them.
        trust_source: Whether the user's code in a run folder may run.
    """
    with results_alone():
        delivered, timed, threads = _asked(folder, at, trust_source=trust_source)
        other = Path(against)
        if other.is_dir():
            _check_alike(delivered, _network_in(other))
        return {
            name: judge(_opener(delivered, against, own.size, threads), own.inputs, margin=margin)
            for name, own in timed.items()
        }


def show(results: Mapping[str, Gate], *, as_json: bool) -> None:
    """Print the answers as lines, or as one JSON object."""
    if as_json:
        values: dict[str, Any] = {name: gate.to_json() for name, gate in results.items()}
        slower = [name for name, gate in results.items() if gate.verdict == "slower"]
        click.echo(json.dumps({"gates": values, "slower": slower}))
        return
    for name, gate in results.items():
        click.echo(f"{name}: {gate}" if name else str(gate))


def exit_code_of(results: Mapping[str, Gate]) -> ExitCode:
    """The exit code of all answers: slower before undecided."""
    codes = [gate.exit_code for gate in results.values()]
    if ExitCode.THRESHOLD_MISSED in codes:
        return ExitCode.THRESHOLD_MISSED
    return max(codes)


def _asked(
    folder: Path, at: Sequence[str], *, trust_source: bool
) -> tuple[Path, dict[str, _Timed], int]:
    """The delivered folder, its inputs by the name of their size, and its number of threads."""
    rng = np.random.default_rng(0)
    if not (folder / RunFile.NETWORK).is_dir() and (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        if at:
            raise ConfigError(
                "--at needs a run folder, whose model gives inputs of any size",
                hint="Name the run folder instead of the delivered network.",
            )
        timed = {name: _Timed(inputs=inputs) for name, inputs in inputs_of(manifest, rng).items()}
        return folder, timed, int(manifest["threads"])
    with RunView(folder) as run:
        work = network_of(run.model_choice(trust_source=trust_source), run)
        threads = threads_of(run)
    sizes = sizes_of(work, at)
    timed = {size.name: _Timed(inputs=size.network.samples(rng), size=size) for size in sizes}
    return delivered_in(folder), timed, threads


def _network_in(folder: Path) -> Path:
    """The delivered network of a run folder, or the folder itself."""
    return folder if (folder / MANIFEST).is_file() else delivered_in(folder)


def inputs_of(manifest: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Arrays]:
    """Inputs for each bucket of a delivered network: random floats, and zeros for integers."""
    kinds = [np.dtype(tensor["dtype"]) for tensor in manifest["inputs"]]
    shapes = {bucket["name"]: bucket["inputs"] for bucket in manifest.get("buckets", ())}
    shapes = shapes or {"": [tensor["shape"] for tensor in manifest["inputs"]]}
    return {
        name: [
            rng.standard_normal(shape).astype(kind) if kind.kind == "f" else np.zeros(shape, kind)
            for shape, kind in zip(own, kinds, strict=True)
        ]
        for name, own in shapes.items()
    }


def _check_alike(folder: Path, other: Path) -> None:
    """Check that two delivered networks have the same inputs."""
    first, second = (read_manifest(own) for own in (folder, other))
    described = [
        [(tensor["name"], tensor["dtype"], tensor.get("shape")) for tensor in own["inputs"]]
        for own in (first, second)
    ]
    if described[0] != described[1]:
        raise RunFolderError(
            f"the networks in {folder} and {other} have other inputs: {described[0]} and "
            f"{described[1]}",
            hint="Compare two deliveries of the same model in the same shapes.",
        )


def _opener(
    delivered: Path, against: str, size: Size | None, threads: int
) -> Callable[[], tuple[NetworkProcess, NetworkProcess]]:
    """A function that starts a process with the network, and one with what it is compared with."""
    folder = Path(against)
    if folder.is_dir():
        other = _network_in(folder)
        return lambda: (
            delivered_process(NETWORK, delivered, threads=threads),
            delivered_process(against, other, threads=threads),
        )
    frameworks = () if size is None else size.network.frameworks
    if size is None or against not in frameworks:
        names = f"; frameworks are {', '.join(frameworks)}" if frameworks else ""
        raise ConfigError(
            f"there is no folder {against}, and no framework of this name runs the network{names}",
            hint="Write --against with a run folder, a delivered network or a framework.",
        )
    network = size.network
    return lambda: (
        delivered_process(NETWORK, delivered, threads=threads),
        framework_process(network, against, threads=threads),
    )
