"""The explorer: contract, determinism, what it leaves behind, and whether learning helps."""

import numpy as np
import pytest
from marks import full

torch = pytest.importorskip("torch")

import attrs  # noqa: E402
from chameleon_core.plugin_api import Archive, Choice, DesignSpace, Visited  # noqa: E402  # noqa: E402
from chameleon_explorers._ppo.explorer import PPOExplorer  # noqa: E402
from chameleon_explorers._ppo.options import PPOOptions  # noqa: E402
from chameleon_explorers._presets import PPO_PAPER, PPO_RELEASE  # noqa: E402
from chameleon_testing._conformance_cases import (  # noqa: E402
    context_of,
    grid,
    observe,
    quality,
    spaces,
    tiled_space,
)
from chameleon_testing.conformance import check_explorer  # noqa: E402

SMALL = {"episodes": 16, "steps": 20, "horizon": 5}
TINY = {"episodes": 6, "steps": 10}
"""The agent learns twice, which is enough for what any explorer must do."""


def options(values, **more):
    named = {**values, **SMALL, **more}
    return PPOOptions(**{key: value for key, value in named.items() if key != "name"})


@pytest.mark.full
@pytest.mark.parametrize(
    "chosen",
    [
        options({}, **TINY),
        options({}, **TINY, transfer=True),
        options({}, **TINY, elites=32, restarts=1.0, early_stop=2, reward="record"),
        options({}, episodes=1, steps=1, horizon=7, illegal_penalty=1.0, entropy_end=0.0),
        options(PPO_PAPER, **TINY),
        options(PPO_RELEASE, **TINY),
    ],
    ids=["default", "transfer", "restarts", "one step", "paper", "release"],
)
def test_it_conforms(chosen):
    check_explorer(lambda context: PPOExplorer(chosen, context))


def wide():
    """A space of 20^8 configurations."""
    return grid(*[20] * 8)


class Scorer:
    """A score function that remembers what it was asked."""

    def __init__(self, score):
        self.calls, self._score = [], score

    def __call__(self, configs):
        self.calls.append(configs.copy())
        return self._score(configs)


def corner(configs):
    """Smooth, and best at one far corner, which no random configuration is near."""
    return np.exp(-np.abs(configs - np.array([19, 0] * 4)).mean(axis=1) / 5.0)


def explored(chosen, space, score=corner, *, rounds=1, count=16, seed=3):
    explorer, visited = PPOExplorer(chosen, context_of(space, seed=seed)), Visited(space)
    scorer = Scorer(score)
    batch = None
    for _ in range(rounds):
        batch = explorer.explore(scorer, visited, count)
        visited.add(batch.configs)
    return scorer, batch


@pytest.mark.parametrize(
    ("preset", "steps"), [({}, 100), full(PPO_PAPER, 400)], ids=["default", "paper"]
)
def test_it_beats_as_many_random_configurations(preset, steps):
    space = wide()
    for seed in range(2):
        chosen = options(preset, episodes=32, steps=steps, horizon=10, early_stop=0)
        scorer, batch = explored(chosen, space, seed=seed)
        looked_at = sum(len(configs) for configs in scorer.calls)
        random = corner(space.sample(looked_at, np.random.default_rng(seed)))
        assert batch.scores.mean() > np.sort(random)[-16:].mean()


@pytest.mark.full
def test_learning_is_what_helps():
    # Without restarts and elites only the policy can tell good moves from bad ones.
    plain = {"restarts": 0.0, "elites": 0, "keep_best": False, "reward": "improvement"}
    plain = {**plain, "early_stop": 0, "episodes": 64, "steps": 120}
    learning, frozen = (
        [
            explored(options({}, **plain, learning_rate=rate), wide(), seed=seed)[1].scores.mean()
            for seed in range(3)
        ]
        for rate in (3e-3, 0.0)
    )
    assert np.mean(learning) > np.mean(frozen)


def test_the_agent_is_kept_from_round_to_round():
    explorer = PPOExplorer(options({}), context_of(wide()))
    agent = explorer._agent
    before = [weight.detach().clone() for weight in agent.network.parameters()]
    explorer.explore(corner, Visited(wide()), 8)
    after = list(agent.network.parameters())
    assert explorer._agent is agent
    assert any(not torch.equal(row, two) for row, two in zip(before, after, strict=True))


def test_one_agent_walks_the_spaces_of_all_tasks_where_it_is_to():
    archive = Archive()
    result = [
        PPOExplorer(
            options({}, transfer=transfer), attrs.evolve(context_of(space), archive=archive)
        )
        for transfer in (True, False)
        for space in (wide(), tiled_space(), spaces()["one knob"])
    ]
    agents = [explorer._agent for explorer in result]
    assert len({id(agent) for agent in agents[:3]}) == 1
    assert len({id(agent) for agent in agents}) == 4
    for explorer, space in zip(
        result[:3], (wide(), tiled_space(), spaces()["one knob"]), strict=True
    ):
        batch = explorer.explore(lambda c, s=space: quality(s, c), Visited(space), 4)
        assert len(batch.configs) == 4


@pytest.mark.parametrize("other", [{"width": 8}, {"jumps": False}, {"learning_rate": 0.5}])
def test_members_of_a_portfolio_with_different_options_have_agents_of_their_own(other):
    archive = Archive()
    first, second = (
        PPOExplorer(
            options({}, transfer=True, **more), attrs.evolve(context_of(wide()), archive=archive)
        )
        for more in ({}, other)
    )
    assert first._agent is not second._agent
    assert len(second.explore(corner, Visited(wide()), 4).configs) == 4


def test_transfer_needs_a_network_that_fits_every_space():
    with pytest.raises(ValueError, match="network: tokens"):
        PPOOptions(network="shared", transfer=True)


def test_one_seed_one_result_whatever_was_drawn_elsewhere():
    batches = []
    for elsewhere in (1, 2):
        torch.manual_seed(elsewhere)
        np.random.seed(elsewhere)  # noqa: NPY002 - the global generator must not matter
        batches.append(explored(options({}), wide(), rounds=2)[1])
    assert np.array_equal(batches[0].configs, batches[1].configs)
    assert np.array_equal(batches[0].scores, batches[1].scores)


def test_torch_is_left_as_it_was_found():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    seen = []

    def score(configs):
        seen.append(torch.get_num_threads())
        return corner(configs)

    try:
        explored(options({}), wide(), score)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
        with pytest.raises(RuntimeError, match="broken"):
            explored(options({}), wide(), broken)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


def broken(configs):
    raise RuntimeError("broken")


def test_steps_are_the_calls_of_the_surrogate_after_the_first():
    scorer, batch = explored(options({}, early_stop=0), wide())
    assert batch.steps == 20
    assert len(scorer.calls) <= 21
    assert max(map(len, scorer.calls)) <= 16


def test_it_stops_when_nothing_better_is_found():
    chosen = options({}, steps=500, early_stop=10)
    space = DesignSpace([Choice(name="k", options=tuple(range(6)))])
    _, batch = explored(chosen, space, lambda configs: configs[:, 0] / 6.0, count=6)
    assert 10 <= batch.steps < 60
    assert batch.configs[:, 0].tolist() == [5, 4, 3, 2, 1, 0]


def test_episodes_begin_at_the_best_measured_and_the_spaces_guesses():
    space = tiled_space()
    explorer = PPOExplorer(options({}, elites=3), context_of(space))
    measured = space.sample(20, np.random.default_rng(5))
    failing = np.arange(20) % 2 == 0
    explorer.observe(observe(space, measured, failing=failing))
    scorer = Scorer(lambda configs: quality(space, configs))
    explorer.explore(scorer, Visited(space), 4)
    working = measured[~failing]
    best = working[np.argsort(-quality(space, working), kind="stable")[:3]]
    begun = {tuple(row) for row in scorer.calls[0].tolist()}
    assert {tuple(row) for row in best.tolist()} <= begun
    assert {tuple(row) for row in space.first_guesses.tolist()} <= begun


def test_without_a_model_it_proposes_at_random():
    explorer = PPOExplorer(options({}), context_of(wide()))
    batch = explorer.explore(None, Visited(wide()), 16)
    assert batch.configs.shape == (16, 8)
    assert batch.steps == 0
    assert not batch.scores.any()
