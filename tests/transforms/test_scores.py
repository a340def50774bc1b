"""Scores of networks at their initialisation."""

import math

import numpy as np
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_transforms import hooks
from chameleon_transforms._network.channels import traced
from chameleon_transforms._network.replacement import replacements, with_modules
from chameleon_transforms._network.space import NetworkSpace
from chameleon_transforms._scores.scorer import Scorer
from torch import nn


@pytest.fixture
def batch():
    return torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(6)


@pytest.fixture
def scorer(space, batch):
    return Scorer(space, *batch)


def test_fisher_potential_is_the_paper_s_sum(scorer, space, scores, batch):
    """Against gradients of one sample's loss at a time, as the equations have it."""
    network = scorer.candidate(space.candidate(space.original))
    outputs, layer_outputs = network.run(batch[0])
    total = 0.0
    for value in layer_outputs.values():
        per_sample = [
            torch.autograd.grad(
                nn.functional.cross_entropy(outputs[n : n + 1], batch[1][n : n + 1]),
                value,
                retain_graph=True,
            )[0]
            for n in range(len(batch[1]))
        ]
        # Batch normalisation mixes samples: the gradient of the mean is the sum of all of these.
        gradient = sum(per_sample).detach()
        delta = (value.detach() * gradient).sum((2, 3))
        total += float((delta**2).mean(0).sum() / 2)
    assert len(layer_outputs) == len(space.layers)
    assert math.isclose(scores["fisher"].score(network), total, rel_tol=1e-4)


@pytest.mark.parametrize("name", [record.name for record in hooks.SCORES])
def test_a_score_is_the_same_twice_and_differs_between_networks(name, scorer, space, scores):
    rows = [space.original, *space.design.sample(4, np.random.default_rng(0))]
    candidates = [space.candidate(row) for row in rows]
    result = [scorer.score(item, scores[name]) for item in candidates]
    assert all(math.isfinite(item) for item in result)
    assert len(set(result)) > 1
    # In another order, from the same random numbers, and after the others have run.
    again = [scorer.score(item, scores[name]) for item in reversed(candidates)]
    assert again[::-1] == pytest.approx(result, rel=1e-5)


def test_more_varied_patterns_score_higher(scorer, space, scores, batch):
    network = scorer.candidate(space.candidate(space.original))
    varied = scores["naswot"].score(network)
    network.images = batch[0] * 1e-3 + batch[0][:1]
    assert scores["naswot"].score(network) < varied


def test_sizes_are_those_of_the_trainable_network(scorer, space, scores):
    for row in space.design.sample(4, np.random.default_rng(0)):
        candidate = space.candidate(row)
        changed = with_modules(space.network.module, replacements(space, candidate))
        layers = [item for item in changed.modules() if isinstance(item, nn.Conv2d | nn.Linear)]
        weights = sum(item.weight.numel() for item in layers)
        assert scorer.score(candidate, scores["parameters"]) == weights
        assert scorer.score(candidate, scores["multiply-adds"]) == candidate.multiply_adds


def test_weights_of_the_network_count_for_nothing(small, images, scorer, scores):
    space = scorer.space
    before = scorer.score(space.candidate(space.original), scores["fisher"])
    for row in small.parameters():
        row.data.mul_(3.0)
    other = NetworkSpace(traced(small, images), [], sequence=1, widths=(1,))
    after = Scorer(other, scorer.images, scorer.labels).score(
        other.candidate(other.original), scores["fisher"]
    )
    assert after == pytest.approx(before, rel=1e-6)


def test_classes_that_the_network_lacks_are_told(space, batch, scores):
    scorer = Scorer(space, batch[0], batch[1] + 20)
    with pytest.raises(ConfigError, match="cannot be judged"):
        scorer.score(space.candidate(space.original), scores["fisher"])


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 8, 3)

    def forward(self, x):
        return self.layer(x)


def test_what_is_no_classifier_is_told(batch, transforms, scores, images):
    space = NetworkSpace(traced(Pair(), images), [transforms["group"]], sequence=1, widths=(1,))
    with pytest.raises(ConfigError, match="classes"):
        Scorer(space, *batch).score(space.candidate(space.original), scores["fisher"])
