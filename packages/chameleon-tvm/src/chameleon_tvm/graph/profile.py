"""Where the time of a delivered network goes, kernel by kernel."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from chameleon_core.stages import Arrays

from chameleon_tvm.graph.relaxed import relax, tvm

RUNS, WARM_UP = 25, 5
_TUNED = "tuned_"
_BUILTIN = "vm.builtin."


def kernel_seconds(folder: str, inputs: Arrays) -> list[dict[str, Any]]:
    """Seconds of each kernel of a delivered network in one inference, the slowest first.

    Timed in place, in the network's own order, with the caches as it leaves them; each call costs
    a microsecond more than without the clock.

    Args:
        folder: of the network.
        inputs: of one inference.

    Returns:
        For each kernel ``name`` (a tuned one's is its task's), ``tuned``, ``calls`` in one
        inference and ``seconds`` of all of them, the median of some inferences.
    """
    manifest = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
    module = tvm.runtime.load_module(str(Path(folder, manifest["module"]).resolve()))
    machine = relax.VirtualMachine(module, tvm.cpu())
    arguments = [tvm.runtime.tensor(array, device=tvm.cpu()) for array in inputs]
    for _ in range(WARM_UP):
        machine["main"](*arguments)
    calls: list[tuple[str, float]] = []
    started = [0.0]

    def instrument(_: Any, name: Any, before: Any, _result: Any, *_arguments: Any) -> int:
        if before:
            started[0] = time.perf_counter()
        else:
            calls.append((str(name), time.perf_counter() - started[0]))
        return 0

    machine.set_instrument(instrument)
    runs = []
    for _ in range(RUNS):
        calls.clear()
        machine["main"](*arguments)
        runs.append(list(calls))
    return summed(runs)


def summed(runs: list[list[tuple[str, float]]]) -> list[dict[str, Any]]:
    """Calls of some inferences by name, as ``kernel_seconds`` returns them.

    Args:
        runs: of each inference the calls in their order, with seconds.
    """
    count: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    # The median of each call and not of sums: a disturbance hits a few calls of every run.
    for place, (name, _) in enumerate(runs[0]):
        kernel = "virtual machine" if name.startswith(_BUILTIN) else name
        count[kernel] += 1
        seconds[kernel] += statistics.median(run[place][1] for run in runs)
    rows = [
        {
            "name": name.removeprefix(_TUNED),
            "tuned": name.startswith(_TUNED),
            "calls": count[name],
            "seconds": seconds[name],
        }
        for name in seconds
    ]
    return sorted(rows, key=lambda row: -float(row["seconds"]))
