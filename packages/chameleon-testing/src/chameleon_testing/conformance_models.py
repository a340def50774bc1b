"""What every cost model must do; :mod:`chameleon_testing.conformance` has it among the others."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from chameleon_core.space import DesignSpace
from chameleon_core.stages import CostModel, Observations, Scores, StageContext

from chameleon_testing.conformance_cases import (
    HUGE,
    SEED,
    context_of,
    observe,
    quality,
    spaces,
)
from chameleon_testing.generators import check_seeds, global_generators_kept
from chameleon_testing.sentences import Unchanged, require

_COUNT = 8
"""Configurations to be measured together."""


def check_cost_model(make: Callable[[StageContext], CostModel]) -> None:
    """Check a cost model: shapes, finiteness, determinism, failures, one or no observation.

    And that a configuration's score is its own, whatever else is asked about with it, and that
    what is to be measured together are different candidates.

    Args:
        make: makes the cost model from its context.
    """
    for name, space in spaces().items():
        where = f"cost model on the space '{name}'"
        configs = space.sample(64, np.random.default_rng(SEED))
        odd = np.arange(len(configs)) % 2 == 1
        for observations in (
            observe(space, configs[:0]),
            observe(space, configs[:1]),
            observe(space, configs, failing=np.ones(len(configs), np.bool_)),
            observe(space, configs, failing=odd),
            _with_costs(observe(space, configs), np.nan),
            _with_costs(observe(space, configs), 0.0),
        ):
            with global_generators_kept(where):
                once, again = (_fit_and_predict(make, space, observations, where) for _ in range(2))
            require(np.array_equal(once, again), f"{where}: two runs of one seed differ")
    space = spaces()[HUGE]
    seen = observe(space, space.sample(64, np.random.default_rng(SEED)))
    check_seeds(
        make,
        space,
        lambda seed: _fit_and_predict(make, space, seen, "cost model", seed=seed),
        where="cost model",
    )
    _check_learning(make)


def _with_costs(observations: Observations, cost: float) -> Observations:
    """The observations with a broken first cost."""
    costs = observations.costs.copy()
    costs[:1] = cost
    return attrs.evolve(observations, costs=costs)


def _fit_and_predict(
    make: Callable[[StageContext], CostModel],
    space: DesignSpace,
    observations: Observations,
    where: str,
    *,
    seed: int = SEED,
) -> Scores:
    model = make(context_of(space, seed=seed))
    require(not model.trained, f"{where}: trained before it saw anything")
    kept = Unchanged(
        where, {"observed configurations": observations.configs, "costs": observations.costs}
    )
    model.fit(observations)
    kept.require()
    if not model.trained:
        return np.zeros(0)
    scores = model.predict(observations.configs)
    kept.require()
    require(isinstance(scores, np.ndarray), f"{where}: scores are not an array")
    require(scores.shape == (len(observations),), f"{where}: not one score per configuration")
    require(np.isfinite(scores).all(), f"{where}: a score is not finite")
    require(len(model.predict(observations.configs[:0])) == 0, f"{where}: scores out of nothing")
    together = model.select_batch(observations.configs, _COUNT)
    if together is not None:
        rows = np.asarray(together)
        require(len(rows) <= _COUNT, f"{where}: more rows to measure together than asked for")
        require(len(np.unique(rows)) == len(rows), f"{where}: a row to measure together twice")
        inside = (rows >= 0) & (rows < len(observations))
        require(inside.all(), f"{where}: a row to measure together that is none")
    return scores


def _check_learning(make: Callable[[StageContext], CostModel]) -> None:
    """A model that has seen half of an easy space must order the rest better than chance."""
    space = spaces()["tiled"]
    configs = space.sample(400, np.random.default_rng(SEED))
    model = make(context_of(space))
    model.fit(observe(space, configs[:200]))
    require(model.trained, "cost model: not trained by 200 different observations")
    predicted, truth = model.predict(configs[200:]), quality(space, configs[200:])
    ranks = [np.argsort(np.argsort(values)) for values in (predicted, truth)]
    correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    require(
        correlation > 0.3,  # noqa: PLR2004 - far above chance, far below what is usual
        f"cost model: rank correlation {correlation:.2f} on configurations it has not seen",
    )
    few = model.predict(configs[200:210])
    require(
        np.allclose(few, predicted[:10], rtol=1e-5, atol=1e-5),
        "cost model: a score depends on what else is asked about",
    )


__all__ = ["check_cost_model"]
