"""Time sampling, legality and features of a design space, on one core.

`python benchmarks/space.py` takes the template and the sketch space of a ResNet-18 convolution,
draws 100,000 legal candidates of each, checks all of them for legality and turns them into features
on one core, and prints the seconds of each phase. `--space synthetic` needs no compiler.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

# Before NumPy starts its threads: the bar is for one core.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
from chameleon_core.space import (
    Choice,
    Configs,
    Constraint,
    DesignSpace,
    Factorization,
    FeatureBlock,
    flag,
)
from chameleon_system.cores import usable_cores


def synthetic_space() -> DesignSpace:
    """Ten knobs with two constraints and an analytical feature, like a template's."""
    tiles = [
        Factorization(name=f"tile_{axis}", extent=extent, parts=3)
        for axis, extent in (("y", 56), ("x", 56), ("f", 64), ("c", 128))
    ]
    return DesignSpace(
        [
            *tiles,
            Choice(name="algorithm", options=("direct", "f2", "f4")),
            Choice(name="tile", options=(1, 2, 4, 8), when=("algorithm", (1, 2))),
            Choice(name="unroll", options=(0, 16, 64, 512)),
            Choice(name="block", options=(1, 2, 4, 8, 16, 32)),
            flag("vectorize"),
            flag("parallel"),
        ],
        constraints=[
            Constraint(
                reason="more accumulators than registers",
                holds=lambda v: v["tile_y"][:, 2] * v["tile_x"][:, 2] * v["tile_f"][:, 2] <= 256,
            ),
            Constraint(
                reason="a block larger than the cache",
                holds=lambda v: v["block"] * v["tile_c"][:, 2] <= 512,
            ),
        ],
        features=FeatureBlock(
            names=("accumulators",),
            compute=lambda v: np.log2((v["tile_y"][:, 2] * v["tile_x"][:, 2])[:, None]),
        ),
    )


def provided_space(name: str) -> DesignSpace:
    """The space a provider has for a 3x3 convolution of 256 channels, 14x14."""
    from chameleon_core.plugins.registry import Registry  # noqa: PLC0415 - needs a compiler
    from chameleon_core.task import Task  # noqa: PLC0415

    registry = Registry.load()
    target = registry.create("targets", "tvm").resolve("native")
    arguments = {"input": [1, 256, 14, 14], "filters": 256, "kernel": 3, "padding": 1}
    arguments |= {"layout": "NHWC"}
    task = Task(name="r8", operator="conv2d", arguments=arguments, target=target, flop=1.0)
    return registry.create("spaces", name).design_space(task)


def draw(space: DesignSpace, count: int, rng: np.random.Generator) -> Configs:
    """Legal configurations, distinct as far as the space goes: small ones are drawn repeatedly."""
    drawn = [space.sample(count, rng)]
    while (missing := count - sum(map(len, drawn))) > 0:
        drawn.append(space.sample(missing, rng))
    return np.concatenate(drawn)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def report(name: str, count: int) -> None:
    """Time one space's phases and print them."""
    space = synthetic_space() if name == "synthetic" else provided_space(name)
    rng = np.random.default_rng(0)
    sampling, configs = timed(lambda: draw(space, count, rng))
    legality, legal = timed(lambda: space.legal(configs))
    featurising, features = timed(lambda: space.features(configs))
    if not legal.all():
        raise SystemExit("an illegal configuration was sampled")
    print(f"{name}: {len(space.knobs)} knobs, {space.size:.3g} index vectors")
    distinct = len(space.distinct(configs))
    print(
        f"{len(configs)} legal candidates ({distinct} distinct), {features.shape[1]} features each"
    )
    for phase, seconds in (
        ("sample", sampling),
        ("legality", legality),
        ("features", featurising),
        ("sum", sampling + legality + featurising),
    ):
        print(f"{phase:10} {seconds:7.3f} s")


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--space",
        nargs="+",
        default=["template", "sketch"],
        help="space providers, or 'synthetic'",
    )
    parser.add_argument("--count", type=int, default=100_000)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {usable_cores()[0]})
    for name in arguments.space:
        report(name, arguments.count)


if __name__ == "__main__":
    main()
