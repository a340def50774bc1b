"""The design spaces, tasks and observations on which the checks run the stages of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from chameleon_core.plugin_api import (
    Builder,
    Choice,
    Configs,
    Constraint,
    DesignSpace,
    Factorization,
    FailureKind,
    NoOptions,
    Observations,
    Scores,
    SpaceProvider,
    StageContext,
    Task,
    Values,
)
from numpy.typing import NDArray

from chameleon_testing._generators import SEED


def grid(
    *cardinalities: int, holds: Callable[[Values], NDArray[np.bool_]] | None = None, **more: Any
) -> DesignSpace:
    """Make a design space with knobs k0, k1 and so on.

    Args:
        cardinalities: the number of values of each knob.
        holds: a constraint of the space, or None.
        more: further arguments of ``DesignSpace``.
    """
    counts = enumerate(cardinalities)
    knobs = [Choice(name=f"k{index}", options=tuple(range(count))) for index, count in counts]
    constraints = [] if holds is None else [Constraint(reason="scripted", holds=holds)]
    return DesignSpace(knobs, constraints=constraints, **more)


class SyntheticSpace(SpaceProvider):
    """A provider of design spaces whose configurations have no programs, to check search stages.

    The space has a knob for each number in the task's argument ``cardinalities``.
    """

    def __init__(self, _options: NoOptions) -> None:
        pass

    def design_space(self, task: Task) -> DesignSpace:
        counts = enumerate(task.arguments["cardinalities"])
        knobs = [Choice(name=f"knob{i}", options=tuple(range(count))) for i, count in counts]
        return DesignSpace(knobs, first_guesses=np.zeros((1, len(knobs)), np.int32))

    def builder(self, task: Task, *, threads: int) -> Builder:
        raise NotImplementedError("synthetic configurations are never built")


def tiled_space() -> DesignSpace:
    """A design space like those of templates, for checks of search stages.

    It has tiles, a knob that applies only sometimes, a constraint and two first guesses.
    """
    return DesignSpace(
        [
            Factorization(name="tile_y", extent=56, parts=3),
            Factorization(name="tile_f", extent=64, parts=3, max_innermost=32),
            Choice(name="algorithm", options=("direct", "winograd")),
            Choice(name="tile", options=(2, 4, 6), when=("algorithm", (1,))),
            Choice(name="unroll", options=(0, 16, 64, 512)),
            Choice(name="vectorize", options=(False, True)),
        ],
        constraints=[
            Constraint(
                reason="more accumulators than registers",
                holds=lambda v: v["tile_y"][:, 2] * v["tile_f"][:, 2] <= 256,  # noqa: PLR2004
            )
        ],
        first_guesses=np.array([[3, 3, 0, 0, 1, 1], [5, 8, 1, 1, 2, 0]], np.int32),
    )


def spaces() -> Mapping[str, DesignSpace]:
    """The design spaces with which checks try stages: ordinary, extreme and degenerate ones.

    The result maps the name of each space to the space.

    The last space is so large that two seeds never propose the same configurations by chance.
    """
    return {
        "tiled": tiled_space(),
        "one configuration": grid(1),
        "one knob": grid(12),
        "three legal of twelve": grid(12, holds=lambda values: values["k0"] % 5 == 0),
        "all illegal": grid(12, 2, holds=lambda values: values["k0"] < 0),
        "huge": grid(*[100] * 12),
    }


def context_of(space: DesignSpace, *, seed: int = SEED) -> StageContext:
    """A context for a stage, with a new random generator."""
    return StageContext(
        space=space,
        task=Task(name="conformance", operator="none", arguments={}, target="none", flop=1e9),
        rng=np.random.default_rng(seed),
        batch_size=8,
        threads=1,
    )


def quality(space: DesignSpace, configs: Configs) -> Scores:
    """A smooth function of knob indices in (0, 1] that serves as throughput, shape (n,).

    The middle value of every knob is best.

    Args:
        space: The design space.
        configs: The configurations, shape (n, knobs).
    """
    middle = (space.cardinalities - 1) / 2
    spread = np.maximum(space.cardinalities, 1)
    distance = np.abs(np.asarray(configs) - middle) / spread
    return np.asarray(np.exp(-2.0 * distance.mean(axis=1)), np.float64)


def observe(
    space: DesignSpace, configs: Configs, *, failing: NDArray[np.bool_] | None = None
) -> Observations:
    """Make observations of configurations without measuring anything.

    The time of a configuration is 1 ms divided by its ``quality``, a number in (0, 1]. This module
    computes the quality from the configuration's knobs, in place of a measured throughput.

    Args:
        space: the design space.
        configs: the configurations, shape (n, knobs).
        failing: whether each configuration fails, shape (n,); if None, none of them fails.
    """
    failing = np.zeros(len(configs), np.bool_) if failing is None else failing
    costs = np.where(failing, np.inf, 1e-3 / quality(space, configs))
    kinds = tuple(FailureKind.RUN_ERROR if failed else None for failed in failing.tolist())
    return Observations(
        configs=configs, costs=costs, failures=kinds, build_seconds=np.full(len(configs), 0.1)
    )
