"""How long a predictor takes for many candidates of one task.

    python benchmarks/one_shot/predicting.py MODEL [--count 100000] [--turns 5]

MODEL is a file or the name of a model in the box. The task is a 3x3 convolution of 256 channels,
14x14, on this machine; candidates are legal ones, drawn before. Prints the seconds of reading the
model with the task's tokens, and of each turn of predicting.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from chameleon_core.plugins.registry import Registry
from chameleon_core.space import DesignSpace
from chameleon_core.task import Task
from chameleon_one_shot.models import model_file
from chameleon_one_shot.predictor.model import load
from chameleon_one_shot.tokens import task_tokens
from chameleon_system.cores import usable_cores

ARGUMENTS = {
    "input": [1, 256, 14, 14],
    "filters": 256,
    "kernel": 3,
    "padding": 1,
    "layout": "NHWC",
}


def candidates(space: DesignSpace, count: int) -> np.ndarray:
    """Legal configurations; those of a small space more than once."""
    rng, drawn, missing = np.random.default_rng(0), [], count
    while missing > 0:
        drawn.append(space.sample(missing, rng))
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a file, or the name of a model in the box")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    registry = Registry.load()
    targets = registry.create("targets", "tvm")
    target = targets.resolve("native")
    task = Task(name="r8", operator="conv2d", arguments=ARGUMENTS, target=target, flop=1.0)
    space = registry.create("spaces", "template").design_space(task)
    configs = candidates(space, given.count)
    device, threads = targets.describe(target), len(usable_cores())
    began = time.perf_counter()
    model = load(model_file(given.model, device))
    predictor = model.predictor.of(task_tokens(task, device, threads, space))
    print(f"model and tokens: {time.perf_counter() - began:.2f} s")
    for _ in range(given.turns):
        began = time.perf_counter()
        means, _ = predictor.moments(configs)
        print(f"{len(means)} candidates, {threads} threads: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
