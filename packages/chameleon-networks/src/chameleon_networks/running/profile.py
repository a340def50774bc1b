"""The time of a delivered network, kernel by kernel."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.network_result import KernelTime
from chameleon_core.stages import Arrays

from chameleon_networks.compile.defaults import TUNED, symbol_of
from chameleon_networks.graph.relaxed import tvm
from chameleon_networks.package.load import load
from chameleon_networks.package.package import VIRTUAL_MACHINE

RUNS, WARM_UP = 25, 5
MEDIAN = 0.5
_BUILTIN = "vm.builtin."

AROUND = "around the kernels"
"""What is no kernel: looking at arguments, binding them, and allocating outputs."""

Calls = list[tuple[str, float]]
"""Kernels in the order in which they are called, with seconds."""


def kernel_seconds(
    folder: str,
    inputs: Arrays,
    *,
    runs: int = RUNS,
    warm_up: int = WARM_UP,
    quantile: float = MEDIAN,
) -> list[KernelTime]:
    """Seconds of each kernel of a delivered network in one inference, the slowest first.

    Timed in place, in the network's own order, with the caches as it leaves them. A kernel's time
    includes calling it: nanoseconds in a call sequence, a microsecond in the virtual machine.

    Args:
        folder: of the network.
        inputs: of one inference.
        runs: inferences that count.
        warm_up: inferences before them.
        quantile: of the seconds of a call in those inferences.

    Returns:
        For each kernel the seconds of all of its calls, each that quantile of some inferences.
    """
    profiler = Profiler(folder, inputs)
    for _ in range(warm_up):
        profiler.run()
    return profiler.summed([profiler.run() for _ in range(runs)], quantile=quantile)


class Profiler:
    """A delivered network that tells the seconds of its kernels.

    Args:
        folder: of the network.
        inputs: of its inferences.

    Attributes:
        outputs: of the last inference.
    """

    def __init__(self, folder: str, inputs: Arrays) -> None:
        network: Any = load(folder)
        manifest = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
        interpreted = manifest["run_time"] == VIRTUAL_MACHINE
        self._run = (_interpreted if interpreted else _called)(network, inputs)
        self._tasks = {symbol_of(task["name"]): task["name"] for task in manifest["tasks"]}
        self.outputs: Arrays = []

    def run(self) -> Calls:
        """One inference."""
        calls, self.outputs = self._run()
        return calls

    def summed(self, runs: list[Calls], *, quantile: float = MEDIAN) -> list[KernelTime]:
        """Some inferences as ``kernel_seconds`` returns them."""
        return summed(runs, self._tasks, quantile=quantile)


def _called(network: Any, inputs: Arrays) -> Callable[[], tuple[Calls, Arrays]]:
    names = network.engine.kernels
    times = np.zeros(len(names), np.int64)

    def run() -> tuple[Calls, Arrays]:
        started = time.perf_counter()
        outputs = network.outputs(network.arrays(inputs), times)
        whole = time.perf_counter() - started
        seconds = (times * 1e-9).tolist()
        return [*zip(names, seconds, strict=True), (AROUND, whole - sum(seconds))], outputs

    return run


def _interpreted(network: Any, inputs: Arrays) -> Callable[[], tuple[Calls, Arrays]]:
    machine = network.engine.machine
    arguments = [tvm.runtime.tensor(array, device=tvm.cpu()) for array in network.arrays(inputs)]
    calls: Calls = []
    started = [0.0]

    def instrument(_: Any, name: Any, before: Any, _result: Any, *_arguments: Any) -> int:
        if before:
            started[0] = time.perf_counter()
        else:
            seconds = time.perf_counter() - started[0]
            builtin = str(name).startswith(_BUILTIN)
            calls.append((AROUND if builtin else str(name), seconds))
        return 0

    machine.set_instrument(instrument)

    def run() -> tuple[Calls, Arrays]:
        calls.clear()
        result = machine["main"](*arguments)
        outputs = [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]
        return list(calls), outputs

    return run


def summed(
    runs: list[Calls], tasks: Mapping[str, str], *, quantile: float = MEDIAN
) -> list[KernelTime]:
    """Calls of some inferences by name, as ``kernel_seconds`` returns them.

    Args:
        runs: of each inference the calls in their order.
        tasks: names of tasks by the names of their kernels' functions.
        quantile: of the seconds of each call.
    """
    count: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    # A quantile of each call and not of sums: a disturbance hits a few calls of every run.
    usual = np.quantile([[took for _, took in run] for run in runs], quantile, axis=0)
    for (name, _), took in zip(runs[0], usual.tolist(), strict=True):
        count[name] += 1
        seconds[name] += took
    rows = [
        KernelTime(
            name=tasks.get(name, name.removeprefix(TUNED)),
            tuned=name.startswith(TUNED),
            calls=count[name],
            seconds=seconds[name],
        )
        for name in seconds
    ]
    return sorted(rows, key=lambda row: -row.seconds)
