"""The contracts of search stages: call these from a plugin's own tests.

Each check takes a factory, makes the stage on ordinary, extreme and degenerate design spaces,
and asserts its contract with a sentence::

    from chameleon_testing.conformance import check_explorer

    def test_conformance():
        check_explorer(lambda context: MyExplorer(MyOptions(), context))

:mod:`chameleon_testing.suites` has the same as classes to derive from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core import stages
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Candidates, Observations, Scores, StageContext, Visited
from numpy.typing import NDArray

from chameleon_testing.conformance_cases import context_of, observe, quality, spaces
from chameleon_testing.generators import SEED, check_seeds, trial

_COUNT = 8
"""Configurations asked for at a time."""

_ROUNDS = 4
"""Rounds of a small tuning run."""


def check_explorer(make: Callable[[StageContext], stages.Explorer], *, draws: bool = True) -> None:
    """Check an explorer: whole small tuning runs, guided and not, twice from one seed.

    And that other seeds give other proposals, all of them drawn from its context's generator.

    Args:
        make: makes the explorer from its context.
        draws: whether it draws random numbers; False for one that is the same for every seed.
    """
    once, other = _tried("explorer", make, _explore, lambda _: {"guided": True, "unguided": False})
    assert not draws or not np.array_equal(once, other), (
        "explorer: two seeds give the same proposals, so that it draws from a generator of its own "
        "or from none; draw from context.rng, or check it as one that draws nothing (draws = False "
        "in its suite, --no-draws)"
    )


def check_sampler(make: Callable[[StageContext], stages.Sampler]) -> None:
    """Check a sampler: determinism, something to measure, plans too small and repetitive.

    As its contract says, a row may be illegal, repeated or visited: it is the synthesizer's to
    replace.

    Args:
        make: makes the sampler from its context.
    """
    _tried("sampler", make, _select, lambda space: {f"{n}": _plan(space, n) for n in (0, 3, 64)})


def check_synthesizer(make: Callable[[StageContext], stages.Synthesizer]) -> None:
    """Check a synthesizer: legality, distinctness, determinism, batches partly visited.

    Args:
        make: makes the synthesizer from its context.
    """
    _tried("synthesizer", make, _refine, lambda space: {"64": _plan(space, 64)})


def check_cost_model(make: Callable[[StageContext], stages.CostModel]) -> None:
    """Check a cost model: shapes, finiteness, determinism, failures, one or no observation.

    And that a configuration's score is its own, whatever else is asked about with it, that
    rows to be measured together are different candidates, and that it learns an easy space.

    Args:
        make: makes the cost model from its context.
    """
    _tried("cost model", make, _predict, _observations)
    with trial("cost model"):
        _check_learning(make)


def _tried(
    noun: str,
    make: Callable[[StageContext], Any],
    use: Callable[..., NDArray[Any]],
    cases: Callable[[DesignSpace], Mapping[str, Any]],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Use a stage in every space: twice from one seed, and in the last, the huge one, from two.

    Args:
        noun: said first in the sentence of a failure.
        make: makes the stage from its context.
        use: has a stage do its work in a space and a case, and checks the result.
        cases: those of a space, by name; the stage leaves their arrays as they are.

    Returns:
        The results of the last case of the huge space for two seeds.
    """
    for name, space in spaces().items():
        for label, case in cases(space).items():
            fields = attrs.asdict(case, recurse=False) if attrs.has(type(case)) else {}
            given = {key: one for key, one in fields.items() if isinstance(one, np.ndarray)}
            with trial(f"{noun} on the space '{name}', {label}", **given):
                once, again = (use(make(context_of(space)), space, case) for _ in range(2))
                assert np.array_equal(once, again), "two runs of one seed differ"
    with trial(noun):
        return check_seeds(
            make(context_of(space)),
            lambda seed: use(make(context_of(space, seed=seed)), space, case),
        )


def _require_rows(space: DesignSpace, configs: Configs, count: int) -> None:
    """Require rows of knob indices, at most ``count`` of them."""
    assert isinstance(configs, np.ndarray), "configurations are not an array"
    shape = (len(configs), len(space.knobs))
    assert configs.shape == shape, f"shape {configs.shape} instead of {shape}"
    assert configs.dtype.kind == "i", f"dtype {configs.dtype} instead of integers"
    assert len(configs) <= count, f"{len(configs)} configurations instead of {count}"
    in_range = ((configs >= 0) & (configs < space.cardinalities)).all()
    assert in_range, "an index that names no choice"


def _require_batch(space: DesignSpace, configs: Configs, visited: Visited, count: int) -> None:
    """Require distinct, legal, unvisited configurations, at most ``count`` of them."""
    _require_rows(space, configs, count)
    assert space.legal(configs).all(), "an illegal configuration"
    assert len(space.distinct(configs)) == len(configs), "a configuration twice"
    assert visited.fresh(configs).all(), "a configuration that was visited"


def _explore(explorer: stages.Explorer, space: DesignSpace, guided: bool) -> Configs:
    """A small tuning run that measures all that is proposed; returns what was measured."""
    visited, seen = Visited(space), np.empty((0, len(space.knobs)), np.int32)
    possible = len(space.sample(2 * _COUNT * _ROUNDS, np.random.default_rng(0)))
    for _ in range(_ROUNDS):
        score = (lambda configs: quality(space, configs)) if guided else None
        found, before = explorer.explore(score, visited, _COUNT), len(seen)
        assert isinstance(found, Candidates), f"{type(found).__name__} instead of Candidates"
        assert len(visited) == before, "it marks configurations as visited itself"
        _require_batch(space, found.configs, visited, _COUNT)
        assert found.scores.shape == (len(found.configs),), "not one score per candidate"
        assert np.isfinite(found.scores).all(), "a score is not finite"
        assert (np.diff(found.scores) <= 0).all(), "candidates are not best first"
        assert before >= possible or len(found.configs), "nothing found although there is more"
        visited.add(found.configs)
        seen = np.concatenate([seen, found.configs])
        # Every third fails, so that an explorer which learns meets failures too.
        observed = observe(space, seen, failing=np.arange(len(seen)) % 3 == 0)
        with trial(configs=observed.configs, costs=observed.costs):
            explorer.observe(observed)
    return seen


@attrs.frozen(kw_only=True)
class _Plan(Candidates):
    """Candidates, best first, every second of which was visited."""

    visited: Visited


def _plan(space: DesignSpace, size: int) -> _Plan:
    configs = space.sample(size, np.random.default_rng(SEED))
    scores = quality(space, configs)
    order = np.argsort(-scores, kind="stable")
    visited = Visited(space)
    visited.add(configs[order[::2]])
    return _Plan(configs=configs[order], scores=scores[order], visited=visited)


def _select(sampler: stages.Sampler, space: DesignSpace, plan: _Plan) -> Configs:
    """The rows that a sampler chooses from a plan."""
    chosen = sampler.select(plan, plan.visited, _COUNT)
    _require_rows(space, chosen, _COUNT)
    fresh = int(plan.visited.fresh(plan.configs).sum())
    usable = (space.legal(chosen) & plan.visited.fresh(chosen)).any()
    assert fresh == 0 or usable, f"nothing chosen from {fresh} candidates"
    return chosen


def _refine(synthesizer: stages.Synthesizer, space: DesignSpace, plan: _Plan) -> Configs:
    """The batch that a synthesizer mends, half of it visited, after it learnt of failures."""
    batch = plan.configs[: 2 * _COUNT].copy()
    with trial(batch=batch):
        synthesizer.observe(observe(space, batch, failing=np.arange(len(batch)) % 2 == 0))
        refined = synthesizer.refine(batch, plan, plan.visited)
    _require_batch(space, refined, plan.visited, len(batch))
    return refined


def _observations(space: DesignSpace) -> dict[str, Observations]:
    configs = space.sample(64, np.random.default_rng(SEED))
    number = np.arange(len(configs))
    whole = observe(space, configs)
    nan, zero = (np.where(number == 0, first, whole.costs) for first in (np.nan, 0.0))
    return {
        "nothing measured": observe(space, configs[:0]),
        "one measured": observe(space, configs[:1]),
        "all failed": observe(space, configs, failing=number >= 0),
        "half failed": observe(space, configs, failing=number % 2 == 1),
        "a cost that is no number": attrs.evolve(whole, costs=nan),
        "a cost of zero": attrs.evolve(whole, costs=zero),
        "all measured": whole,
    }


def _predict(model: stages.CostModel, _: DesignSpace, observations: Observations) -> Scores:
    """A model's scores of what it has learnt from."""
    early = model.trained
    assert not early, "trained before it saw anything"
    model.fit(observations)
    if not model.trained:
        return np.zeros(0)
    scores, count = model.predict(observations.configs), len(observations)
    assert isinstance(scores, np.ndarray), "scores are not an array"
    assert scores.shape == (count,), "not one score per configuration"
    assert np.isfinite(scores).all(), "a score is not finite"
    assert len(model.predict(observations.configs[:0])) == 0, "scores out of nothing"
    together = model.select_batch(observations.configs, _COUNT)
    rows = np.asarray([] if together is None else together)
    assert len(rows) <= _COUNT, "more rows to measure together than asked for"
    assert len(np.unique(rows)) == len(rows), "a row to measure together twice"
    assert ((rows >= 0) & (rows < count)).all(), "a row to measure together that is none"
    return scores


def _check_learning(make: Callable[[StageContext], stages.CostModel]) -> None:
    """A model that has seen half of an easy space must order the rest better than chance."""
    space = spaces()["tiled"]
    configs = space.sample(400, np.random.default_rng(SEED))
    model = make(context_of(space))
    model.fit(observe(space, configs[:200]))
    assert model.trained, "not trained by 200 different observations"
    predicted, truth = model.predict(configs[200:]), quality(space, configs[200:])
    ranks = [np.argsort(np.argsort(values)) for values in (predicted, truth)]
    correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    sentence = f"rank correlation {correlation:.2f} on configurations it has not seen"
    assert correlation > 0.3, sentence  # noqa: PLR2004 - far above chance, far below usual
    alone = np.allclose(model.predict(configs[200:210]), predicted[:10], rtol=1e-5, atol=1e-5)
    assert alone, "a score depends on what else is asked about"


__all__ = ["check_cost_model", "check_explorer", "check_sampler", "check_synthesizer"]
