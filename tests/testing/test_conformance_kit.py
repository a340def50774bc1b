"""The conformance kit finds the mistake in every stage that has one."""

import importlib.util
import itertools
import random

import numpy as np
import pytest
from chameleon_core.plugin_api import Candidates, CostModel, Explorer, Sampler, Synthesizer
from chameleon_testing._conformance_cases import quality
from chameleon_testing.conformance import (
    check_cost_model,
    check_explorer,
    check_sampler,
    check_synthesizer,
)

calls = itertools.count()

# Where the core is tested alone, no library that learns is there.
with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def sorted_candidates(configs, scores):
    order = np.argsort(-scores, kind="stable")
    return Candidates(configs=configs[order], scores=scores[order])


class GoodExplorer(Explorer):
    def __init__(self, context):
        self.space, self.rng = context.space, context.rng

    def explore(self, score, visited, count):
        configs = self.pick(visited, count)
        return self.rank(configs, score(configs) if score else np.zeros(len(configs)))

    def pick(self, visited, count):
        return visited.sample(count, self.rng)

    def rank(self, configs, scores):
        return sorted_candidates(configs, scores)


def broken(good, **methods):
    """A good stage but for some methods."""
    return type("Broken", (good,), methods)


def drawn_anywhere(self, visited, count):
    shape = (count, len(self.space.knobs))
    return self.rng.integers(0, self.space.cardinalities, shape, dtype=np.int32)


def worst_first(self, configs, scores):
    order = np.argsort(scores, kind="stable")
    return Candidates(configs=configs[order], scores=scores[order])


def test_a_good_explorer_passes():
    check_explorer(GoodExplorer)


@pytest.mark.parametrize(
    ("words", "method", "does"),
    [
        ("twice", "pick", lambda self, v, n: np.repeat(v.sample(n // 2, self.rng), 2, axis=0)),
        ("visited", "pick", lambda self, v, n: self.space.sample(n, self.rng)),
        ("illegal", "pick", drawn_anywhere),
        ("9 configurations instead of 8", "pick", lambda self, v, n: v.sample(n + 1, self.rng)),
        ("nothing found", "pick", lambda self, v, n: v.sample(0, self.rng)),
        ("differ", "pick", lambda self, v, n: v.sample(n, np.random.default_rng(next(calls)))),
        ("best first", "rank", worst_first),
        ("score per candidate", "rank", lambda _, c, s: Candidates(configs=c, scores=np.zeros(0))),
        ("instead of integers", "rank", lambda _, c, s: sorted_candidates(c.astype(float), s)),
    ],
)
def test_bad_explorers_are_found_out(words, method, does):
    with pytest.raises(AssertionError, match=words):
        check_explorer(broken(GoodExplorer, **{method: does}))


class GoodModel(CostModel):
    """Knows the answer once it has seen anything; rests where it has not."""

    def __init__(self, context):
        self.space, self.seen = context.space, 0

    def fit(self, observations):
        self.seen = len(observations)

    @property
    def trained(self):
        return self.seen > 1

    def predict(self, configs):
        return quality(self.space, configs)


class PickingModel(GoodModel):
    def select_batch(self, configs, count):
        return np.arange(min(count, len(configs)))[::-1]


def test_a_good_model_passes():
    check_cost_model(GoodModel)
    check_cost_model(PickingModel)


def right(self, configs):
    return quality(self.space, configs)


@pytest.mark.parametrize(
    ("words", "attribute", "does"),
    [
        ("trained before", "trained", True),
        ("not trained", "trained", False),
        ("rank correlation", "predict", lambda _, c: -(np.arange(len(c)) * 7919 % 101) * 1.0),
        ("what else is asked", "predict", lambda m, c: np.argsort(np.argsort(right(m, c))) * 1.0),
        ("not finite", "predict", lambda _, c: np.full(len(c), np.inf)),
        ("score per configuration", "predict", lambda m, c: right(m, c)[:-1]),
        ("differ", "predict", lambda m, c: right(m, c) + next(calls)),
        ("together twice", "select_batch", lambda _, c, n: np.zeros(min(n, len(c)), int)),
        ("together that is none", "select_batch", lambda _, c, n: np.arange(min(n, len(c))) + 1000),
        ("more rows", "select_batch", lambda _, c, n: np.arange(2 * min(n, len(c)) + 9)),
    ],
)
def test_bad_models_are_found_out(words, attribute, does):
    with pytest.raises(AssertionError, match=words):
        check_cost_model(broken(GoodModel, **{attribute: does}))


class GoodSampler(Sampler):
    def __init__(self, context):
        self.space, self.rng = context.space, context.rng

    def select(self, candidates, visited, count):
        return candidates.configs[visited.unvisited(candidates.configs)][:count]


class BlindSampler(GoodSampler):
    """Leaves it to the synthesizer to replace what was visited, as its contract allows."""

    def select(self, candidates, visited, count):
        return candidates.configs[:count]


@pytest.mark.parametrize("sampler", [GoodSampler, BlindSampler])
def test_a_good_sampler_passes(sampler):
    check_sampler(sampler)


def chosen(self, candidates, visited, count):
    return GoodSampler.select(self, candidates, visited, count)


@pytest.mark.parametrize(
    ("words", "does"),
    [
        ("nothing chosen", lambda _, c, visited, n: c.configs[~visited.unvisited(c.configs)][:n]),
        ("nothing chosen", lambda _, c, visited, n: c.configs[:0]),
        ("names no choice", lambda self, *given: chosen(self, *given) + 10_000),
        ("9 configurations instead of 8", lambda self, c, v, n: chosen(self, c, v, n + 1)),
        ("differ", lambda self, *given: np.roll(chosen(self, *given), next(calls), axis=0)),
    ],
)
def test_bad_samplers_are_found_out(words, does):
    with pytest.raises(AssertionError, match=words):
        check_sampler(broken(GoodSampler, select=does))


class GoodSynthesizer(Synthesizer):
    def __init__(self, context):
        self.space = context.space

    def refine(self, batch, candidates, visited):
        return batch[visited.unvisited(batch)]


def test_a_good_synthesizer_passes():
    check_synthesizer(GoodSynthesizer)


@pytest.mark.parametrize(
    ("words", "does"),
    [
        ("visited", lambda _, batch, candidates, visited: batch),
        ("twice", lambda _, batch, candidates, v: np.repeat(batch[v.unvisited(batch)], 2, axis=0)),
    ],
)
def test_bad_synthesizers_are_found_out(words, does):
    with pytest.raises(AssertionError, match=words):
        check_synthesizer(broken(GoodSynthesizer, refine=does))


class OwnGeneratorExplorer(GoodExplorer):
    """Draws from a generator of its own, the same for every seed."""

    def __init__(self, context):
        super().__init__(context)
        self.rng = np.random.default_rng(0)


class GlobalExplorer(GoodExplorer):
    def pick(self, visited, count):
        np.random.seed(3)  # noqa: NPY002 - what nobody may do
        return super().pick(visited, count)


class UnseededSampler(GoodSampler):
    def select(self, candidates, visited, count):
        np.random.default_rng()
        return super().select(candidates, visited, count)


class FixedSampler(GoodSampler):
    def select(self, candidates, visited, count):
        rng = np.random.RandomState(7)
        fresh = super().select(candidates, visited, len(candidates.configs))
        return fresh[rng.permutation(len(fresh))][:count]


class TorchSampler(GoodSampler):
    seed = 11

    def select(self, candidates, visited, count):
        import torch  # noqa: PLC0415 - it need not be there

        generator = torch.Generator()
        if self.seed is not None:
            generator.manual_seed(self.seed)
        fresh = super().select(candidates, visited, len(candidates.configs))
        return fresh[torch.randperm(len(fresh), generator=generator).numpy()][:count]


class DefaultTorchSampler(TorchSampler):
    seed = None


class SeededTorchSampler(TorchSampler):
    """Seeds torch's generator with a number drawn from its context's, as it may."""

    @property
    def seed(self):
        return int(self.rng.integers(1 << 30))


class SeededSampler(GoodSampler):
    """Seeds a generator of its own with a number drawn from its context's, as it may."""

    def select(self, candidates, visited, count):
        rng = np.random.RandomState(int(self.rng.integers(1 << 30)))
        fresh = super().select(candidates, visited, len(candidates.configs))
        return fresh[rng.permutation(len(fresh))][:count]


class SpoilingSampler(GoodSampler):
    def select(self, candidates, visited, count):
        chosen = super().select(candidates, visited, count).copy()
        candidates.scores[:] = 0.0
        return chosen


class SpoilingModel(GoodModel):
    def fit(self, observations):
        super().fit(observations)
        observations.costs[np.isinf(observations.costs)] = 1.0


class FixedSynthesizer(GoodSynthesizer):
    def refine(self, batch, candidates, visited):
        random.Random(5).random()
        return super().refine(batch, candidates, visited)


@pytest.mark.parametrize(
    ("check", "stage", "words"),
    [
        (check_explorer, OwnGeneratorExplorer, r"with a fixed seed, numpy.random.default_rng\(0\)"),
        (check_explorer, GlobalExplorer, "NumPy's global generator"),
        (check_sampler, UnseededSampler, "a generator that nobody seeds"),
        (check_sampler, FixedSampler, r"with a fixed seed, numpy.random.RandomState\(7\)"),
        pytest.param(
            *(check_sampler, TorchSampler, r"with a fixed seed, torch.Generator\(11\)"),
            marks=with_torch,
        ),
        pytest.param(
            *(check_sampler, DefaultTorchSampler, r"torch.Generator\(its default seed\)"),
            marks=with_torch,
        ),
        (check_sampler, SpoilingSampler, "changes the scores it is given"),
        (check_cost_model, SpoilingModel, "changes the costs it is given"),
        (check_synthesizer, FixedSynthesizer, r"with a fixed seed, random.Random\(5\)"),
    ],
)
def test_draws_and_changes_that_nobody_may_make_are_found_out(check, stage, words):
    with pytest.raises(AssertionError, match=words):
        check(stage)


@pytest.mark.parametrize(
    "sampler", [SeededSampler, pytest.param(SeededTorchSampler, marks=with_torch)]
)
def test_a_generator_seeded_from_the_context_s_passes(sampler):
    check_sampler(sampler)


class FirstExplorer(GoodExplorer):
    """Draws nothing: the first configurations in their order, whatever the seed is."""

    def pick(self, visited, count):
        size = min(int(np.prod(self.space.cardinalities.astype(float))), 4096)
        rows = np.unravel_index(np.arange(size), tuple(self.space.cardinalities[-6:]))
        configs = np.zeros((size, len(self.space.knobs)), np.int32)
        configs[:, -len(rows) :] = np.stack(rows, axis=1)
        configs = self.space.distinct(self.space.canonical(configs))
        configs = configs[self.space.legal(configs)]
        return configs[visited.unvisited(configs)][:count]


def test_what_is_the_same_for_every_seed_has_to_say_so():
    with pytest.raises(AssertionError, match="two seeds give the same proposals"):
        check_explorer(FirstExplorer)
    check_explorer(FirstExplorer, draws=False)


def test_a_generator_that_a_class_keeps_is_found_out(monkeypatch):
    """It goes on from task to task; set here alone, since all of a package is looked at."""
    monkeypatch.setattr(GoodSampler, "kept", np.random.default_rng(3), raising=False)
    with pytest.raises(AssertionError, match=r"GoodSampler\.kept is a generator of its own"):
        check_sampler(GoodSampler)
