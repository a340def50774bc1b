"""What every search stage must do: call these from a plugin's own tests.

Each check takes a factory, makes the stage on ordinary, extreme and degenerate design spaces,
and raises :class:`ConformanceError` with a sentence where a contract is broken::

    from chameleon_testing.conformance import check_explorer

    def test_conformance():
        check_explorer(lambda context: MyExplorer(MyOptions(), context))

:mod:`chameleon_testing.suites` has the same as classes to derive from.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import (
    Candidates,
    CostModel,
    Explorer,
    Observations,
    Sampler,
    ScoreFunction,
    Scores,
    StageContext,
    Synthesizer,
    Visited,
)

from chameleon_testing.conformance_cases import (
    HUGE,
    SEED,
    context_of,
    observe,
    quality,
    spaces,
)
from chameleon_testing.generators import check_seeds, global_generators_kept
from chameleon_testing.sentences import ConformanceError, Unchanged, require

_COUNT = 8
"""Configurations asked for at a time."""

_ROUNDS = 4
"""Rounds of a small tuning run."""


def require_batch(
    space: DesignSpace, configs: Configs, visited: Visited, count: int, *, where: str
) -> None:
    """Require distinct, legal, unvisited configurations, at most ``count`` of them.

    Args:
        space: the design space.
        configs: what a stage returned.
        visited: what it was told not to return.
        count: how many it was asked for.
        where: said first in the sentence of a failure.
    """
    require_rows(space, configs, count, where=where)
    require(space.legal(configs).all(), f"{where}: an illegal configuration")
    require(len(space.distinct(configs)) == len(configs), f"{where}: a configuration twice")
    require(visited.fresh(configs).all(), f"{where}: a configuration that was visited")


def require_rows(space: DesignSpace, configs: Configs, count: int, *, where: str) -> None:
    """Require rows of knob indices, at most ``count`` of them; as for ``require_batch``."""
    require(isinstance(configs, np.ndarray), f"{where}: configurations are not an array")
    shape = (len(configs), len(space.knobs))
    require(configs.shape == shape, f"{where}: shape {configs.shape} instead of {shape}")
    require(configs.dtype.kind == "i", f"{where}: dtype {configs.dtype} instead of integers")
    require(len(configs) <= count, f"{where}: {len(configs)} configurations instead of {count}")
    in_range = ((configs >= 0) & (configs < space.cardinalities)).all()
    require(in_range, f"{where}: an index that names no choice")


def check_explorer(make: Callable[[StageContext], Explorer], *, draws: bool = True) -> None:
    """Check an explorer: whole small tuning runs, guided and not, twice from one seed.

    And that other seeds give other proposals, all of them drawn from its context's generator.

    Args:
        make: makes the explorer from its context.
        draws: whether it draws random numbers; False for one that is the same for every seed.
    """
    for name, space in spaces().items():
        for guided in (False, True):
            where = f"explorer on the space '{name}', {'guided' if guided else 'unguided'}"
            with global_generators_kept(where):
                once, again = (_explore(make, space, where, guided=guided) for _ in range(2))
            require(np.array_equal(once, again), f"{where}: two runs of one seed differ")
    where, space = f"explorer on the space '{HUGE}', unguided", spaces()[HUGE]
    once, other = check_seeds(
        make,
        space,
        lambda seed: _explore(make, space, where, guided=False, seed=seed),
        where=where,
    )
    require(
        not draws or not np.array_equal(once, other),
        f"{where}: two seeds give the same proposals, so that it draws from a generator of its own "
        "or from none; draw from context.rng, or check it as one that draws nothing (draws = False "
        "in its suite, --no-draws)",
    )


def _explore(
    make: Callable[[StageContext], Explorer],
    space: DesignSpace,
    where: str,
    *,
    guided: bool,
    seed: int = SEED,
) -> Configs:
    """A small tuning run that measures all that is proposed; returns what was measured."""
    explorer, visited = make(context_of(space, seed=seed)), Visited(space)
    score: ScoreFunction | None = (lambda configs: quality(space, configs)) if guided else None
    seen = np.empty((0, len(space.knobs)), np.int32)
    possible = len(space.sample(2 * _COUNT * _ROUNDS, np.random.default_rng(0)))
    for _ in range(_ROUNDS):
        before = len(visited)
        found = explorer.explore(score, visited, _COUNT)
        require(
            isinstance(found, Candidates), f"{where}: {type(found).__name__} instead of Candidates"
        )
        require(len(visited) == before, f"{where}: it marks configurations as visited itself")
        require_batch(space, found.configs, visited, _COUNT, where=where)
        require(
            found.scores.shape == (len(found.configs),), f"{where}: not one score per candidate"
        )
        require(np.isfinite(found.scores).all(), f"{where}: a score is not finite")
        require((np.diff(found.scores) <= 0).all(), f"{where}: candidates are not best first")
        exhausted = len(seen) >= possible
        require(exhausted or len(found.configs), f"{where}: nothing found although there is more")
        visited.add(found.configs)
        seen = np.concatenate([seen, found.configs])
        # Every third fails, so that an explorer which learns meets failures too.
        observations = observe(space, seen, failing=np.arange(len(seen)) % 3 == 0)
        kept = Unchanged(
            where,
            {"observed configurations": observations.configs, "costs": observations.costs},
        )
        explorer.observe(observations)
        kept.require()
    return seen


def check_sampler(make: Callable[[StageContext], Sampler]) -> None:
    """Check a sampler: determinism, something to measure, plans too small and repetitive.

    As its contract says, a row may be illegal, repeated or visited: it is the synthesizer's to
    replace.

    Args:
        make: makes the sampler from its context.
    """
    for name, space in spaces().items():
        where = f"sampler on the space '{name}'"
        for plan_size in (0, 3, 64):
            candidates, visited = _plan(space, plan_size)
            kept = _unchanged(where, candidates)
            with global_generators_kept(where):
                once, again = (
                    make(context_of(space)).select(candidates, visited, _COUNT) for _ in range(2)
                )
            kept.require()
            require_rows(space, once, _COUNT, where=where)
            require(np.array_equal(once, again), f"{where}: two runs of one seed differ")
            fresh = int(visited.fresh(candidates.configs).sum())
            usable = bool((space.legal(once) & visited.fresh(once)).any())
            require(fresh == 0 or usable, f"{where}: nothing chosen from {fresh} candidates")
    space = spaces()[HUGE]
    candidates, visited = _plan(space, 64)
    check_seeds(
        make,
        space,
        lambda seed: make(context_of(space, seed=seed)).select(candidates, visited, _COUNT),
        where="sampler",
    )


def check_synthesizer(make: Callable[[StageContext], Synthesizer]) -> None:
    """Check a synthesizer: legality, distinctness, determinism, batches partly visited.

    Args:
        make: makes the synthesizer from its context.
    """
    for name, space in spaces().items():
        where = f"synthesizer on the space '{name}'"
        candidates, visited = _plan(space, 64)
        # Half of the plan was visited: a batch taken blindly from it has to be mended.
        batch = candidates.configs[: 2 * _COUNT].copy()
        kept = _unchanged(where, candidates, batch=batch)
        with global_generators_kept(where):
            once, again = (_refine(make, space, batch, candidates, visited) for _ in range(2))
        kept.require()
        require_batch(space, once, visited, len(batch), where=where)
        require(np.array_equal(once, again), f"{where}: two runs of one seed differ")
    space = spaces()[HUGE]
    candidates, visited = _plan(space, 64)
    check_seeds(
        make,
        space,
        lambda seed: _refine(make, space, candidates.configs, candidates, visited, seed=seed),
        where="synthesizer",
    )


def _refine(
    make: Callable[[StageContext], Synthesizer],
    space: DesignSpace,
    batch: Configs,
    candidates: Candidates,
    visited: Visited,
    *,
    seed: int = SEED,
) -> Configs:
    """What a synthesizer makes of a batch after it has learnt of failures."""
    synthesizer = make(context_of(space, seed=seed))
    synthesizer.observe(observe(space, batch, failing=np.arange(len(batch)) % 2 == 0))
    return synthesizer.refine(batch, candidates, visited)


def _unchanged(where: str, candidates: Candidates, **more: Configs) -> Unchanged:
    return Unchanged(where, {"candidates": candidates.configs, "scores": candidates.scores, **more})


def _plan(space: DesignSpace, size: int) -> tuple[Candidates, Visited]:
    """Candidates, best first, every second of which was visited."""
    configs = space.sample(size, np.random.default_rng(SEED))
    scores = quality(space, configs)
    order = np.argsort(-scores, kind="stable")
    visited = Visited(space)
    visited.add(configs[order[::2]])
    return Candidates(configs=configs[order], scores=scores[order]), visited


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


__all__ = [
    "ConformanceError",
    "check_cost_model",
    "check_explorer",
    "check_sampler",
    "check_synthesizer",
    "require",
    "require_batch",
    "require_rows",
]
