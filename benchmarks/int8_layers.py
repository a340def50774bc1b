"""ResNet-18's layers in int8, ours and oneDNN's, in one process.

`python benchmarks/int8_layers.py` prints, per layer, GFLOP/s of our int8 and of oneDNN's through
PyTorch (uint8 in and out, weights prepacked), and at the end the geometric mean of the ratios. Ours
are the best of a few first guesses; all are timed in turns, the minimum counts.
oneDNN's int8 saturates sums of two products on CPUs without VNNI: the last column says how far its
outputs are from the exact ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chameleon_core.plugin_api import NoOptions
from chameleon_system._cores import usable_cores
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import Conv2dSpec
from ruamel.yaml import YAML

LAYERS = Path(__file__).parent.parent / "examples" / "resnet18_layers.yaml"
Repeats = Callable[[], float]


def layers() -> list[Conv2dSpec]:
    """The layers of the example in int8, which write uint8."""
    operators = YAML(typ="safe").load(LAYERS)["model"]["operators"]
    reduced = {"dtype": "int8", "output_dtype": "uint8"}
    return [Conv2dSpec(**one["conv2d"], **reduced) for one in operators]


def kernels(spec: Conv2dSpec, count: int, threads: int) -> list[Repeats]:
    """Functions that run a first guess once and return its seconds."""
    target = TVMTargets(NoOptions()).resolve("native")
    provider = TemplateSpace(TemplateOptions(algorithms=("direct",)))
    builder = provider.builder(spec.task("layer", target), threads=threads)
    built = [builder.build(guess.tolist()) for guess in builder.space.first_guesses[:count]]
    return [lambda kernel=kernel: kernel.time(1) for kernel in built]


def onednn_int8(spec: Conv2dSpec, threads: int) -> tuple[Repeats, float]:
    """The kernel of oneDNN, and its largest error in steps of its output."""
    torch.set_num_threads(threads)
    operator = operator_of(spec.task("layer", TVMTargets(NoOptions()).resolve("native")))
    inputs = operator.inputs()
    data, weights, scale, bias, numbers = (torch.from_numpy(array) for array in inputs)
    rank = spec.rank
    where = [list(spec.strides), list(spec.pads[:rank]), list(spec.dilations), spec.groups]
    zero, multiplier, out_zero = int(numbers[0]), float(numbers[3]), int(numbers[4])
    packed = torch.ops.onednn.qconv_prepack(weights, scale, 1.0, zero, *where, list(data.shape))
    data = data.contiguous(memory_format=torch.channels_last)
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    rest = (scale, zeros, bias * scale, *where, 1.0 / multiplier, out_zero, None, "none", [], "")

    def run() -> Any:
        return torch.ops.onednn.qconv2d_pointwise(data, 1.0, zero, packed, *rest)

    def seconds() -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    (expected,) = operator.reference(inputs)
    return seconds, float(np.abs(run().numpy().astype(np.float64) - expected).max())


def best(groups: dict[str, list[Repeats]], seconds: float) -> dict[str, float]:
    """The least seconds of each group, all of them run in turns."""
    found = dict.fromkeys(groups, math.inf)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, members in groups.items():
            for member in members:
                # The first run of a turn wakes the threads up.
                member()
                found[name] = min(found[name], member(), member())
    return found


def measure(threads: int, guesses: int, seconds: float) -> list[dict[str, Any]]:
    """Print and return one row a layer."""
    rows = []
    for spec in layers():
        vendor, steps = onednn_int8(spec, threads)
        groups = {"int8": kernels(spec, guesses, threads), "onednn_int8": [vendor]}
        rates = {name: spec.flop / took / 1e9 for name, took in best(groups, seconds).items()}
        rows.append({"name": spec.name, "onednn_steps": steps, **rates})
        shown = " ".join(f"{rate:9.1f}" for rate in rates.values())
        print(f"{spec.name:6} {shown} {steps:9.0f}", flush=True)
    return rows


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(usable_cores()))
    parser.add_argument("--guesses", type=int, default=6, help="first guesses of each of ours")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each layer")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(arguments.threads)
    heads = ("int8", "oneDNN", "its error")
    print(f"{'layer':6} {' '.join(f'{head:>9}' for head in heads)}")
    rows = measure(arguments.threads, arguments.guesses, arguments.seconds)
    ratios = [row["int8"] / row["onednn_int8"] for row in rows]
    print(f"int8 over oneDNN's: {statistics.geometric_mean(ratios):.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
