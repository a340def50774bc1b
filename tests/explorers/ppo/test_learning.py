"""The clipped objective, the networks, and an agent that learns."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from chameleon_explorers._ppo.learning import Agent, Rollout, clipped_objective, masked_bias  # noqa: E402
from chameleon_explorers._ppo.networks import (  # noqa: E402
    SeparateActorCritic,
    SharedActorCritic,
    TokenActorCritic,
    stay_bias,
)
from chameleon_explorers._ppo.options import PPOOptions  # noqa: E402

KNOBS, ACTIONS = 3, 4


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def network(kind, seed=0):
    first = 5 if kind is TokenActorCritic else KNOBS
    return kind(first, ACTIONS, 8, generator(seed))


def states(kind, count):
    shape = (count, KNOBS, 5) if kind is TokenActorCritic else (count, KNOBS)
    return torch.randn(shape, generator=generator(1))


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, 2.0),
        (1.5, 2.0, 2.6),  # more of what is good counts up to 1 + clip
        (0.5, 2.0, 1.0),
        (0.5, -2.0, -1.4),  # less of what is bad counts down to 1 - clip
        (1.5, -2.0, -3.0),
    ],
)
def test_the_objective_is_clipped_where_the_paper_says(ratio, advantage, expected):
    result = clipped_objective(torch.tensor([ratio]), torch.tensor([advantage]), 0.3)
    assert float(result) == pytest.approx(expected)


def test_beyond_the_clip_there_is_no_gradient():
    ratio = torch.tensor([1.5, 0.5, 1.1], requires_grad=True)
    clipped_objective(ratio, torch.tensor([1.0, -1.0, 1.0]), 0.3).backward()
    assert (ratio.grad != 0).tolist() == [False, False, True]


@pytest.mark.parametrize("kind", [TokenActorCritic, SharedActorCritic, SeparateActorCritic])
def test_networks_have_the_shapes_and_seeds_they_say(kind):
    before = torch.get_rng_state()
    logits, values = network(kind)(states(kind, 7))
    assert logits.shape == (7, KNOBS, ACTIONS)
    assert values.shape == (7,)
    again, _ = network(kind)(states(kind, 7))
    other, _ = network(kind, seed=9)(states(kind, 7))
    assert torch.equal(logits, again)
    assert not torch.equal(logits, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_actor_and_critic_share_their_first_layer_in_the_papers_network():
    shared = network(SharedActorCritic)
    _, values = shared(states(SharedActorCritic, 4))
    values.sum().backward()
    assert shared.first.weight.grad.abs().sum() > 0
    separate = network(SeparateActorCritic)
    _, values = separate(states(SeparateActorCritic, 4))
    values.sum().backward()
    assert all(weight.grad is None for weight in separate.policy.parameters())


def test_a_network_over_tokens_does_not_mind_their_order_or_number():
    tokens = network(TokenActorCritic)
    seen = states(TokenActorCritic, 6)
    logits, values = tokens(seen)
    turned, same = tokens(seen.flip(1))
    assert torch.allclose(turned.flip(1), logits, atol=1e-6)
    assert torch.allclose(same, values, atol=1e-6)
    assert tokens(seen[:, :1])[0].shape == (6, 1, ACTIONS)


def test_the_bias_makes_an_untrained_policy_move_so_many_knobs():
    logits = torch.zeros(ACTIONS)
    logits[1] = stay_bias(10, ACTIONS, 1.5)
    moving = 1.0 - float(torch.softmax(logits, 0)[1])
    assert 10 * moving == pytest.approx(1.5)
    assert stay_bias(10, ACTIONS, 0.0) == 0.0
    # With few knobs it can move no more than all actions being equal makes it.
    assert stay_bias(1, ACTIONS, 1.5) == pytest.approx(0.0)


def test_a_masked_action_is_never_drawn_and_the_others_as_often_as_they_should_be():
    agent = Agent(network(SharedActorCritic), PPOOptions(), generator())
    allowed = torch.ones(4000, KNOBS, ACTIONS, dtype=torch.bool)
    allowed[:, 0, 2] = False
    logit_biases = masked_bias(allowed, torch.tensor([0.0, np.log(3.0), 0.0, 0.0]))
    actions, log_probabilities, _ = agent.act(torch.zeros(4000, KNOBS), logit_biases)
    counts = [torch.bincount(actions[:, knob], minlength=ACTIONS) / 4000 for knob in range(KNOBS)]
    assert counts[0].tolist() == pytest.approx([1 / 5, 3 / 5, 0, 1 / 5], abs=0.04)
    assert counts[1].tolist() == pytest.approx([1 / 6, 3 / 6, 1 / 6, 1 / 6], abs=0.04)
    assert torch.isfinite(log_probabilities).all()


def rollout_of(agent, seen, reward):
    """A rollout of one step in which an action is worth what ``reward`` says."""
    logit_biases = torch.zeros(len(seen), KNOBS, ACTIONS)
    actions, log_probabilities, values = agent.act(seen, logit_biases)
    count = len(seen)
    return Rollout(
        states=seen[None],
        logit_biases=logit_biases[None],
        actions=actions[None],
        log_probabilities=log_probabilities[None],
        values=torch.stack([values, torch.zeros(count)]),
        rewards=reward(actions)[None],
        alive=torch.ones(1, count),
        not_done=torch.zeros(1, count),
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", [TokenActorCritic, SharedActorCritic, SeparateActorCritic])
@pytest.mark.parametrize("minibatch", [None, 32])
def test_it_learns_which_action_is_worth_something(kind, minibatch):
    options = PPOOptions(learning_rate=1e-2, entropy=0.0, minibatch=minibatch)
    agent = Agent(network(kind), options, generator())

    def reward(actions):
        return (actions == 2).float().mean(dim=-1)

    seen = states(kind, 256)
    rewards = []
    for _ in range(30):
        rollout = rollout_of(agent, seen, reward)
        rewards.append(float(rollout.rewards.mean()))
        agent.learn(rollout, 0.0)
    assert rewards[0] < 0.45
    assert rewards[-1] > 0.6
    # The critic learnt what there is to be had.
    assert float(agent.values(seen).mean()) == pytest.approx(rewards[-1], abs=0.15)


def test_entropy_keeps_a_policy_open():
    def spread(entropy):
        options = PPOOptions(learning_rate=1e-2)
        agent = Agent(network(SharedActorCritic), options, generator())
        seen = states(SharedActorCritic, 128)
        for _ in range(30):
            rollout = rollout_of(agent, seen, lambda actions: (actions == 0).float().mean(dim=-1))
            agent.learn(rollout, entropy)
        log_policy = torch.log_softmax(agent.network(seen)[0], dim=-1).detach()
        return float(-(log_policy.exp() * log_policy).sum(dim=-1).mean())

    assert spread(10.0) > spread(0.0) + 0.5


def test_episodes_that_had_ended_teach_nothing():
    agent = Agent(network(SharedActorCritic), PPOOptions(), generator())
    seen = states(SharedActorCritic, 16)
    rollout = rollout_of(agent, seen, lambda actions: actions[:, 0].float())
    before = [weight.detach().clone() for weight in agent.network.parameters()]
    ended = Rollout(
        **{
            name: getattr(rollout, name)
            for name in (
                "states",
                "logit_biases",
                "actions",
                "log_probabilities",
                "values",
                "rewards",
            )
        },
        alive=torch.zeros(1, 16),
        not_done=torch.zeros(1, 16),
    )
    agent.learn(ended, 0.1)
    after = list(agent.network.parameters())
    assert all(torch.equal(row, two) for row, two in zip(before, after, strict=True))
