"""Judges whether a network is slower than another one: ``chameleon bench-network --against``.

Two processes of equal networks may differ for as long as they live, since their memory lies
elsewhere. So a pair of processes gives a single ratio. The gate starts new pairs until its
interval for the ratios excludes an answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
from chameleon_bench.api import shift_interval
from chameleon_cli.api import results_alone
from chameleon_core.api import RunFile, RunView
from chameleon_core.plugin_api import Arrays, ConfigError, ExitCode, RunFolderError

from chameleon_networks._artifact.writer import MANIFEST, read_manifest
from chameleon_networks._commands.network_times import Size, sizes_of
from chameleon_networks._commands.runs import delivered_in, network_of, threads_of
from chameleon_networks._evaluation.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
)

CONFIDENCE = 0.999
"""Confidence of the interval each time that it is looked at, about ten times in three minutes."""

SECONDS = 180.0
"""When the gate gives up."""

_TURNS, _TURN_SECONDS = 24, 0.05
"""Turns of each process, and the least duration of one. In short turns, neighbours disturb both
processes alike."""

_FIRST_LOOK, _NEXT_LOOK = 11, 1.25
"""Pairs before the first look: fewer have no interval of this confidence. Factor to the next look,
so that looking often does not make a wrong answer likely."""


@attrs.frozen(kw_only=True)
class Gate:
    """The answer whether a network is slower than another one by more than a margin.

    Attributes:
        ratio: The network's time over that of the other network; above 1, it is slower.
        low: The lower end of the interval of the ratio; 0 if it is unknown.
        high: The upper end of the interval; infinity if it is unknown.
        margin: The share of time by which the network may be slower.
        pairs: Number of pairs of processes.
    """

    ratio: float
    low: float
    high: float
    margin: float
    pairs: int

    @classmethod
    def of(cls, logarithms: Sequence[float], margin: float) -> Gate:
        """The answer from the logarithm of the ratio of each pair."""
        ratio, low, high = map(math.exp, shift_interval(logarithms, CONFIDENCE))
        return cls(ratio=ratio, low=low, high=high, margin=margin, pairs=len(logarithms))

    @property
    def verdict(self) -> str:
        """``slower``, ``not slower`` or ``undecided``."""
        if self.low > 1.0 + self.margin:
            return "slower"
        return "not slower" if self.high < 1.0 + self.margin else "undecided"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that ends with this answer."""
        codes = {"slower": ExitCode.THRESHOLD_MISSED, "not slower": ExitCode.OK}
        return codes.get(self.verdict, ExitCode.UNDECIDED)

    def to_json(self) -> dict[str, Any]:
        """The attributes and the verdict as JSON values; null for an end that is unknown."""
        ends = {name: value if 0.0 < value < math.inf else None for name, value in self._ends}
        return {**attrs.asdict(self), **ends, "confidence": CONFIDENCE, "verdict": self.verdict}

    @property
    def _ends(self) -> tuple[tuple[str, float], tuple[str, float]]:
        return ("low", self.low), ("high", self.high)

    def __str__(self) -> str:
        ends = f" ({self.low:.3f} to {self.high:.3f})" if self.low else ""
        return (
            f"{self.verdict}: {self.ratio:.3f} times the time{ends}, "
            f"{self.margin:.1%} are allowed, {self.pairs} pairs of processes"
        )


def judge(
    opened: Callable[[], tuple[NetworkProcess, NetworkProcess]],
    inputs: Arrays,
    *,
    margin: float,
    seconds: float = SECONDS,
) -> Gate:
    """Time a network and another one in pairs of processes until the answer is sure.

    Args:
        opened: A function that starts a process with the network, and one with the other network.
        inputs: The inputs of an inference.
        margin: The share of time by which the network may be slower.
        seconds: When to give up.

    Raises:
        ChameleonError: One of the networks fails.
    """
    end = time.monotonic() + seconds
    logarithms: list[float] = []
    look = _FIRST_LOOK
    while True:
        logarithms.append(_logarithm(opened, inputs, reverse=len(logarithms) % 2 == 1))
        late = time.monotonic() > end
        if late or len(logarithms) >= look:
            gate = Gate.of(logarithms, margin)
            if late or gate.verdict != "undecided":
                return gate
            look = math.ceil(_NEXT_LOOK * look)


def _logarithm(
    opened: Callable[[], tuple[NetworkProcess, NetworkProcess]],
    inputs: Arrays,
    *,
    reverse: bool,
) -> float:
    """The logarithm of the ratio of the times of a pair of processes, from their turns."""
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(process) for process in opened()]
        order = [1, 0] if reverse else [0, 1]
        logarithms = []
        for process in pair:
            process.pause()
        for _ in range(_TURNS):
            seconds = [0.0, 0.0]
            for index in order:
                turn = pair[index].seconds(inputs, about=_TURN_SECONDS)
                pair[index].pause()
                seconds[index] = statistics.median(turn)
            logarithms.append(math.log(seconds[0] / seconds[1]))
            order.reverse()
    return statistics.median(logarithms)


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
