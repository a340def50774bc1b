"""Adaptive sampling: the knee, the representatives, the odd plans."""

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import Candidates, Visited
from chameleon_samplers._kmeans_knee import KMeansKneeSampler, KneeSearch, is_past_knee
from chameleon_samplers._options import KMeansKneeOptions
from chameleon_testing._conformance_cases import context_of, grid, quality


def plan_of(space, configs):
    """The configurations as a plan, best first."""
    scores = quality(space, configs)
    order = np.argsort(-scores, kind="stable")
    return Candidates(configs=configs[order], scores=scores[order])


def select(space, plan, options=None, *, count=64, seed=1, visited=None):
    sampler = KMeansKneeSampler(options or KMeansKneeOptions(), context_of(space, seed=seed))
    return sampler.select(plan, visited or Visited(space), count)


def blobs(groups, size, seed=0):
    """Groups of configurations that lie close together, far from the other groups."""
    rng = np.random.default_rng(seed)
    centres = np.array([[20 * (g % 5), 20 * (g // 5)] for g in range(groups)])
    near = centres[:, None] + rng.integers(0, 3, (groups, size, 2))
    return near.reshape(-1, 2).astype(np.int32)


@pytest.mark.parametrize(
    ("losses", "stops_at"),
    [
        ([100.0, 30.0, 9.0, 8.0, 7.0], 3),  # 9 -> 8 is the first fall by less than 2.5
        ([100.0, 90.0, 1.0], 1),
        ([100.0, 30.0, 9.0, 3.0], None),
        ([100.0, 0.0, 0.0], 2),
    ],
)
def test_the_knee_of_a_hand_made_curve(losses, stops_at):
    previous, result = np.inf, None
    for index, loss in enumerate(losses):
        if is_past_knee(loss, previous, 2.5):
            result = index
            break
        previous = loss
    assert result == stops_at


@pytest.mark.parametrize("groups", [12, 20])
def test_as_many_clusters_as_the_candidates_have_groups(groups):
    points = blobs(groups, 20).astype(float)
    counts = [4, groups, 4 * groups]
    clusters = KneeSearch(counts, 4.0, np.random.default_rng(0)).run(points)
    # From 4 clusters to all groups the loss collapses; the last count is the one past the knee.
    assert len(clusters) == 4 * groups
    tight = KneeSearch(counts[:2], 4.0, np.random.default_rng(0)).run(points)
    assert len(tight) == groups
    by_group = tight.labels.reshape(groups, 20)
    assert (by_group == by_group[:, :1]).all()
    assert len(np.unique(by_group[:, 0])) == groups


def test_the_loss_falls_with_every_number_of_clusters():
    points = np.random.default_rng(3).random((300, 4))
    losses = [
        KneeSearch(range(8, k + 1, 8), 1e12, np.random.default_rng(0)).run(points).loss
        for k in (8, 16)
    ]
    assert losses[1] < losses[0]


def test_algorithm_1_to_the_letter_stops_at_its_second_number_of_clusters():
    # The reason for larger steps: one cluster more never makes the loss fall 2.5-fold.
    space = grid(16, 5, 4, 4, 2, 2, 2)
    for seed in range(20):
        plan = plan_of(space, space.sample(512, np.random.default_rng(seed)))
        assert len(select(space, plan, KMeansKneeOptions.literal(), seed=seed)) == 9


def test_a_batch_is_as_small_as_the_knee_says():
    space = grid(16, 5, 4, 4, 2, 2, 2)
    plan = plan_of(space, space.sample(512, np.random.default_rng(0)))
    assert {len(select(space, plan, seed=seed)) for seed in range(5)} <= {16, 24, 32, 40, 48}


@pytest.mark.parametrize("representative", ["nearest", "best"])
def test_every_group_is_represented_by_a_candidate_and_the_best_one_where_asked_for(representative):
    space = grid(100, 100)
    configs = np.unique(blobs(10, 9), axis=0)
    options = KMeansKneeOptions(smallest=10, largest=10, representative=representative)
    chosen = select(space, plan_of(space, configs), options)
    assert len(chosen) == 10
    assert np.isin(space.keys(chosen), space.keys(configs)).all()
    assert len({tuple(row) for row in (chosen // 20).tolist()}) == 10
    if representative == "best":
        groups = [configs[(configs // 20 == row // 20).all(axis=1)] for row in chosen]
        best = [quality(space, group).max() for group in groups]
        assert quality(space, chosen).tolist() == best == sorted(best, reverse=True)


def test_scaling_makes_a_knob_with_few_choices_count():
    # Two groups that differ in a flag only, spread widely along the other knob.
    space = grid(101, 2)
    configs = np.array([[10 * i, flag] for i in range(11) for flag in (0, 1)], np.int32)
    both = KMeansKneeOptions(smallest=2, largest=2)
    flags = {tuple(row) for row in select(space, plan_of(space, configs), both)[:, 1:].tolist()}
    assert flags == {(0,), (1,)}
    unscaled = KMeansKneeOptions(smallest=2, largest=2, scaled=False)
    chosen = select(space, plan_of(space, configs), unscaled)
    assert abs(int(chosen[0, 0]) - int(chosen[1, 0])) >= 30


def test_rounded_down_centroids_may_be_of_no_candidate():
    space = grid(100, 100)
    configs = np.array([[0, 0], [3, 3], [90, 90], [95, 95]], np.int32)
    options = KMeansKneeOptions(smallest=2, largest=2, scaled=False, representative="floor")
    chosen = select(space, plan_of(space, configs), options)
    assert sorted(map(tuple, chosen.tolist())) == [(1, 1), (92, 92)]


def test_released_code_looks_at_the_two_widest_knobs_only():
    space = grid(2, 50, 3, 50)
    rng = np.random.default_rng(0)
    corners = np.array([[0, 0, 0, 0], [0, 45, 0, 0], [0, 0, 0, 45], [0, 45, 0, 45]])
    noise = rng.integers(0, [2, 4, 3, 4], (4, 30, 4))
    configs = space.distinct((corners[:, None] + noise).reshape(-1, 4).astype(np.int32))
    release = KMeansKneeOptions.release()
    assert (release.knobs, release.step, release.scaled) == ("widest", 8, False)
    options = KMeansKneeOptions(smallest=4, largest=4, knobs="widest", representative="floor")
    chosen = select(space, plan_of(space, configs), options)
    assert {tuple(row) for row in (chosen[:, [1, 3]] // 40).tolist()} == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }


@pytest.mark.parametrize("candidates", [1, 3, 7])
def test_fewer_candidates_than_clusters(candidates):
    space = grid(100, 100)
    configs = space.sample(candidates, np.random.default_rng(0))
    chosen = select(space, plan_of(space, configs))
    assert {tuple(row) for row in chosen.tolist()} == {tuple(row) for row in configs.tolist()}


@pytest.mark.parametrize("options", [KMeansKneeOptions(), KMeansKneeOptions.release()])
def test_candidates_that_are_all_the_same(options):
    space = grid(10, 10)
    configs = np.repeat([[4, 6]], 40, axis=0).astype(np.int32)
    chosen = select(space, Candidates(configs=configs, scores=np.ones(40)), options)
    assert chosen.tolist() == [[4, 6]]


def test_nothing_to_choose_from():
    space = grid(10, 10)
    visited = Visited(space)
    plan = plan_of(space, space.sample(8, np.random.default_rng(0)))
    visited.add(plan.configs)
    assert select(space, plan, visited=visited).shape == (0, 2)
    assert select(space, plan, count=0).shape == (0, 2)


def test_a_batch_bounds_the_clusters():
    space = grid(30, 30, 30)
    plan = plan_of(space, space.sample(512, np.random.default_rng(0)))
    assert len(select(space, plan, KMeansKneeOptions(threshold=1e9), count=20)) == 16
    assert len(select(space, plan, count=5)) == 5


@pytest.mark.parametrize("largest", [3, 5])
def test_never_more_clusters_than_the_largest_number(largest):
    space = grid(30, 30, 30)
    plan = plan_of(space, space.sample(200, np.random.default_rng(0)))
    options = KMeansKneeOptions(smallest=1, largest=largest, step=1, threshold=1.0 + 1e-9)
    assert len(select(space, plan, options)) == largest


def test_of_candidates_as_good_the_first_stands_for_a_cluster():
    space = grid(100, 100)
    configs = np.random.default_rng(4).permutation(np.unique(blobs(4, 30), axis=0))
    plan = Candidates(configs=configs.astype(np.int32), scores=np.ones(len(configs)))
    options = KMeansKneeOptions(smallest=4, largest=4, representative="best")
    groups = [tuple(row) for row in (plan.configs // 20).tolist()]
    first = sorted({groups.index(group) for group in groups})
    assert select(space, plan, options).tolist() == plan.configs[first].tolist()


def test_of_knobs_as_wide_the_first_two_are_clustered_by():
    """Candidates that differ in the others alone are one cluster."""
    space = grid(*[4] * 24)
    configs = np.random.default_rng(0).integers(0, 4, (60, 24)).astype(np.int32)
    configs[:, :2] = 1
    plan = Candidates(configs=configs, scores=np.ones(60))
    options = attrs.evolve(KMeansKneeOptions.release(), smallest=2, largest=2)
    assert len(select(space, plan, options)) == 1


@pytest.mark.parametrize("options", [KMeansKneeOptions.literal(), KMeansKneeOptions.release()])
def test_the_paper_and_its_code_scale_no_knob_and_round_down(options):
    space = grid(101, 2)
    configs = np.array([[10 * i, flag] for i in range(11) for flag in (0, 1)], np.int32)
    chosen = select(space, plan_of(space, configs), attrs.evolve(options, smallest=2, largest=2))
    assert abs(int(chosen[0, 0]) - int(chosen[1, 0])) >= 30
    # Half of each cluster have the flag.
    assert chosen[:, 1].tolist() == [0, 0]
