"""The environment: moves, bounds, legality, rewards, ends and restarts."""

import numpy as np
import pytest
from chameleon_explorers._ppo.episodes import DOWN, JUMP, STAY, UP, EpisodeBatch
from chameleon_testing._conformance_cases import grid, quality, tiled_space
from hypothesis import given
from hypothesis import strategies as st


def total(configs):
    return configs.sum(axis=1).astype(float)


def batch(space, starts, *, score=total, reward="improvement", **options):
    rng = np.random.default_rng(0)
    starts = np.asarray(starts, np.int32)
    return EpisodeBatch(space, score, starts, rng=rng, reward=reward, **options)


def test_every_knob_moves_at_once():
    episodes = batch(grid(9, 9, 9), [[4, 4, 4]])
    episodes.step(np.array([[DOWN, STAY, UP]]))
    assert episodes.configs.tolist() == [[3, 4, 5]]
    assert episodes.moves.tolist() == [[-1, 0, 1]]


def test_a_knob_stays_at_its_bound():
    episodes = batch(grid(3, 3, 1), [[0, 2, 0]])
    step = episodes.step(np.array([[DOWN, UP, UP]]))
    assert episodes.configs.tolist() == [[0, 2, 0]]
    assert len(step.legal_configs) == len(step.scores) == 0


def test_a_configuration_that_is_not_legal_is_not_entered():
    never_both = grid(9, 9, holds=lambda v: v["k0"] + v["k1"] < 5)
    episodes = batch(never_both, [[2, 2], [1, 1]], illegal_penalty=0.5)
    step = episodes.step(np.array([[UP, UP], [UP, UP]]))
    assert episodes.configs.tolist() == [[2, 2], [2, 2]]
    assert (step.legal_configs.tolist(), step.scores.tolist()) == ([[2, 2]], [4.0])
    assert step.rewards[0] == -0.5
    assert step.rewards[1] > 0


def test_a_jump_leads_to_any_other_choice():
    episodes = batch(grid(4, 1), np.tile([[2, 0]], (300, 1)))
    episodes.step(np.full((300, 2), JUMP))
    counts = np.bincount(episodes.configs[:, 0], minlength=4)
    assert counts[2] == 0
    assert (counts[[0, 1, 3]] > 60).all()
    assert not episodes.configs[:, 1].any()


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("score", [3.0, 4.0]), ("improvement", [-1.0, 1.0]), ("record", [0.0, 0.0])],
)
def test_rewards_of_a_step_down_and_up_again(reward, expected):
    # Starts of scores 4 and 6 have mean 5 and standard deviation 1, the unit of all but "score".
    episodes = batch(grid(9), [[4], [6]], reward=reward)
    down = episodes.step(np.array([[DOWN], [STAY]])).rewards[0]
    assert [down, episodes.step(np.array([[UP], [STAY]])).rewards[0]] == expected


def test_a_record_is_rewarded_by_what_it_adds():
    episodes = batch(grid(9), [[4], [6]], reward="record")
    assert episodes.step(np.array([[UP], [DOWN]])).rewards.tolist() == [1.0, 0.0]
    assert episodes.best.tolist() == [5.0, 6.0]


def test_an_episode_that_keeps_its_best_does_not_follow_a_step_down():
    episodes = batch(grid(9, 9), [[4, 4], [4, 4], [4, 4]], keep_best=True)
    step = episodes.step(np.array([[DOWN, STAY], [UP, DOWN], [UP, STAY]]))
    assert step.legal_configs.tolist() == [[3, 4], [5, 3], [5, 4]]
    assert step.scores.tolist() == [7.0, 8.0, 9.0]
    assert step.rewards.tolist() == [-1.0, 0.0, 1.0]
    assert episodes.configs.tolist() == [[4, 4], [5, 3], [5, 4]]
    assert episodes.scores.tolist() == episodes.best.tolist() == [8.0, 8.0, 9.0]
    # What was tried is remembered all the same, so that the policy may try something else.
    assert episodes.moves.tolist() == [[-1, 0], [1, -1], [1, 0]]
    assert episodes.summary[:, 2].tolist() == [-1.0, 0.0, 1.0]


def test_an_episode_ends_when_enough_knobs_stay_or_sit_at_a_bound():
    space = grid(9, 9, 9, 9)
    episodes = batch(space, [[4, 4, 4, 4], [4, 4, 4, 4], [1, 1, 1, 4]], end_share=0.75)
    actions = [[UP, STAY, STAY, STAY], [UP, UP, STAY, STAY], [DOWN, DOWN, DOWN, UP]]
    assert episodes.step(np.array(actions)).not_done.tolist() == [False, True, False]
    before = episodes.configs.copy()
    step = episodes.step(np.full((3, 4), UP))
    assert (episodes.configs[[0, 2]] == before[[0, 2]]).all()
    assert step.legal_configs.tolist() == [[6, 6, 5, 5]]


def test_a_restarted_episode_is_a_new_one():
    episodes = batch(grid(9, 9), [[4, 4], [6, 6]], end_share=0.5)
    episodes.step(np.full((2, 2), STAY))
    assert not episodes.alive.any()
    episodes.restart(np.array([1]), np.array([[1, 2]], np.int32), np.array([3.0]))
    assert episodes.alive.tolist() == [False, True]
    assert (episodes.best[1], episodes.scores[1]) == (3.0, 3.0)
    assert episodes.summary[1, 1:].tolist() == [0.0, 0.0, 0.0]


def test_what_the_model_returned_is_not_changed():
    pairs = []

    def remembering(configs):
        pairs.append((scores := total(configs), scores.copy()))
        return scores

    episodes = batch(grid(9, 9), [[4, 4], [6, 6]], score=remembering)
    episodes.step(np.full((2, 2), UP))
    episodes.restart(np.array([1]), np.array([[1, 2]], np.int32), np.array([3.0]))
    assert all((scores == copy).all() for scores, copy in pairs)


def test_equal_scores_have_no_unit_and_no_harm_comes_of_it():
    episodes = batch(grid(9), [[4], [6]], score=lambda configs: np.full(len(configs), 7.0))
    assert episodes.step(np.array([[UP], [DOWN]])).rewards.tolist() == [0.0, 0.0]
    assert np.isfinite(episodes.summary).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_episodes_only_visit_legal_configurations_and_know_their_scores(seed, length):
    space = tiled_space()
    rng = np.random.default_rng(seed)
    episodes = batch(space, space.sample(16, rng), score=lambda configs: quality(space, configs))
    for _ in range(length):
        allowed = episodes.movable()
        assert allowed[:, :, STAY].all()
        episodes.step((rng.random(allowed.shape) * allowed).argmax(axis=-1))
        assert space.legal(episodes.configs).all()
        assert np.array_equal(episodes.scores, quality(space, episodes.configs))
        assert (episodes.best >= episodes.scores).all()


def test_a_knob_that_does_not_apply_or_has_one_choice_can_only_stay():
    space = tiled_space()
    column = space.index["tile"]
    starts = space.sample(64, np.random.default_rng(1))
    episodes = batch(space, starts, score=lambda configs: quality(space, configs))
    direct = starts[:, space.index["algorithm"]] == 0
    assert direct.any()
    assert not episodes.movable()[direct, column][:, [DOWN, UP, JUMP]].any()
    single = batch(grid(1, 3), [[0, 1]])
    assert single.movable().tolist() == [[[False, True, False, False], [True] * 4]]
