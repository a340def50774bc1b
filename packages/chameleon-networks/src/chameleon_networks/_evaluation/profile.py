"""Measures the time of each kernel of a delivered network."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import Arrays, ConfigError
from chameleon_tvm.api import TUNED, late_tvm, symbol_of

from chameleon_networks._artifact.load import VIRTUAL_MACHINE, load
from chameleon_networks._evaluation.state import arguments

RUNS, WARM_UP = 25, 5
"""Number of timed inferences, and of those before them."""

MEDIAN = 0.5
_BUILTIN = "vm.builtin."

AROUND = "around the kernels"
"""Name of the time outside of kernels: checking arguments, and allocating outputs."""

Calls = list[tuple[str, float]]
"""The name and the seconds of each kernel call of an inference, in order."""


def kernel_seconds(
    folder: str, inputs: Arrays, *, quantile: float = MEDIAN, repeats: int = 0
) -> list[NetworkResult.Kernel]:
    """The seconds of each kernel, summed over its calls in one inference, slowest first.

    With ``repeats``, each call is repeated as often, and the time is that of a repetition.
    """
    # Complete inferences are run, so that each kernel finds the caches as its predecessors leave
    # them.
    profiler = Profiler(folder, inputs)
    for _ in range(WARM_UP):
        profiler.run()
    runs = [profiler.run(repeats) for _ in range(RUNS // (1 + repeats))]
    return summed(runs, profiler.tasks, quantile=quantile)


class Profiler:
    """Runs a delivered network, and measures the seconds of each of its kernels.

    Attributes:
        tasks: The name of each task, by the name of its kernel's function.
        outputs: The outputs of the last inference.
    """

    def __init__(self, folder: str, inputs: Arrays) -> None:
        network: Any = load(folder)
        manifest = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
        interpreted = manifest["run_time"] == VIRTUAL_MACHINE
        self._run = (_interpreted if interpreted else _called)(network, inputs)
        self.tasks = {symbol_of(task["name"]): task["name"] for task in manifest["tasks"]}
        self.outputs: Arrays = []

    def run(self, repeats: int = 0) -> Calls:
        """Run one inference, and return the seconds of each kernel call.

        With ``repeats``, each call is repeated, and the outputs are undefined.
        """
        calls, self.outputs = self._run(repeats)
        return calls


def _called(network: Any, inputs: Arrays) -> Callable[[int], tuple[Calls, Arrays]]:
    names = network.engine.kernels
    times = np.zeros(len(names), np.int64)

    def run(repeats: int) -> tuple[Calls, Arrays]:
        times.fill(repeats)
        given, named = arguments(network, inputs)
        named = {name: {key: x.copy() for key, x in state.items()} for name, state in named.items()}
        started = time.perf_counter()
        outputs = network.run(network.arrays(given, **named), times)
        whole = time.perf_counter() - started
        outputs += named.get("state", {}).values()
        seconds = (times * 1e-9).tolist()
        around = 0.0 if repeats else whole - sum(seconds)
        return [*zip(names, seconds, strict=True), (AROUND, around)], outputs

    return run


def _interpreted(network: Any, inputs: Arrays) -> Callable[[int], tuple[Calls, Arrays]]:
    machine = network.engine.machine
    given, named = arguments(network, inputs)
    tensors = [
        late_tvm.tvm.runtime.tensor(array, device=late_tvm.tvm.cpu())
        for array in network.arrays(given, **named)
    ]
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

    def run(repeats: int) -> tuple[Calls, Arrays]:
        if repeats:
            raise ConfigError(
                "TVM's virtual machine, which runs this network, cannot repeat single kernels"
            )
        calls.clear()
        result = machine["main"](*tensors)
        outputs = [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]
        return list(calls), outputs

    return run


def summed(
    runs: list[Calls], tasks: Mapping[str, str], *, quantile: float = MEDIAN
) -> list[NetworkResult.Kernel]:
    """Combine the kernel calls of several inferences to seconds per kernel, the slowest first."""
    count: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    # A quantile of each call and not of sums: a disturbance hits a few calls of every run.
    usual = np.quantile([[took for _, took in run] for run in runs], quantile, axis=0)
    for (name, _), took in zip(runs[0], usual.tolist(), strict=True):
        count[name] += 1
        seconds[name] += took
    rows = [
        NetworkResult.Kernel(
            name=tasks.get(name, name.removeprefix(TUNED)),
            tuned=name.startswith(TUNED),
            calls=count[name],
            seconds=seconds[name],
        )
        for name in seconds
    ]
    return sorted(rows, key=lambda row: -row.seconds)
