"""The agent of the PPO explorer, and the clipped objective by which the agent learns."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from chameleon_explorers._ppo.networks import ActorCritic
from chameleon_explorers._ppo.options import PPOOptions

_FORBIDDEN = -1e9
"""The logit of an action that is not allowed."""


@attrs.frozen(kw_only=True, eq=False)
class Rollout:
    """The transitions of all episodes between two updates of the agent, in order of time.

    Attributes:
        states: the states before each step, shape (steps, episodes, ...).
        logit_biases: added to the network's logits; they exclude impossible actions, and make
            staying more or less likely, shape (steps, episodes, knobs, actions).
        actions: the chosen action of each knob, shape (steps, episodes, knobs).
        log_probabilities: the joint log-probability of the actions of a step, shape (steps,
            episodes).
        values: the critic's estimates before each step and after the last, shape (steps + 1,
            episodes).
        rewards: the reward of each step, shape (steps, episodes).
        alive: 1 if the episode had not ended before the step, shape (steps, episodes).
        not_done: 1 if the episode had not ended after the step either, shape (steps, episodes).
    """

    states: Tensor
    logit_biases: Tensor
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    rewards: Tensor
    alive: Tensor
    not_done: Tensor


def clipped_objective(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate objective of PPO, to be maximised (Schulman et al., 2017, equation 7).

    ``ratio`` is the probability of each action over its probability when it was chosen, shape (n,);
    ``advantage`` has shape (n,).
    """
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    return torch.minimum(ratio * advantage, clipped * advantage).mean()


class Agent:
    """An actor-critic network with its optimizer and random generator."""

    def __init__(
        self, network: ActorCritic, options: PPOOptions, generator: torch.Generator
    ) -> None:
        self.network = network
        self._options = options
        self._generator = generator
        self._optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)

    def act(self, states: Tensor, logit_biases: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw actions (n, knobs) from the policy, with log-probabilities (n,) and values (n,).

        ``states`` has shape (n, ...), and ``logit_biases`` (n, knobs, actions).
        """
        with torch.no_grad():
            logits, values = self.network(states)
            log_policy = self._log_softmax(logits, logit_biases)
            # The Gumbel-max trick is much faster than `multinomial`.
            uniform = torch.rand(log_policy.shape, generator=self._generator).clamp_min_(1e-20)
            actions = (log_policy - (-uniform.log()).log()).argmax(dim=-1)
            return actions, _joint_log_probability(log_policy, actions), values

    def values(self, states: Tensor) -> Tensor:
        """The critic's estimates of the states' values, shape (n,)."""
        with torch.no_grad():
            values: Tensor = self.network(states)[1]
        return values

    def learn(self, rollout: Rollout, entropy: float) -> None:
        """Train the network on a rollout, for the number of epochs in the options."""
        options = self._options
        advantage = advantages(
            rollout.rewards,
            rollout.values,
            rollout.not_done,
            discount=options.discount,
            decay=options.gae,
        )
        alive_rows = rollout.alive.flatten().nonzero().squeeze(-1)
        if not len(alive_rows):
            return
        returns = (advantage + rollout.values[:-1]).flatten()[alive_rows]
        data = (
            rollout.states.flatten(0, 1)[alive_rows],
            rollout.logit_biases.flatten(0, 1)[alive_rows],
            rollout.actions.flatten(0, 1)[alive_rows],
            rollout.log_probabilities.flatten()[alive_rows],
            standardise(advantage.flatten()[alive_rows]),
            returns,
        )
        size = options.minibatch
        for _ in range(options.epochs):
            if size is None or size >= len(alive_rows):
                self._descend(data, entropy)
                continue
            for _ in range(-(-len(alive_rows) // size)):
                rows = torch.randint(len(alive_rows), (size,), generator=self._generator)
                self._descend(tuple(column[rows] for column in data), entropy)

    def _descend(self, transitions: tuple[Tensor, ...], entropy: float) -> None:
        """Take one gradient step on PPO's loss (Schulman et al., 2017, equation 9)."""
        states, logit_biases, actions, before, advantage, returns = transitions
        options = self._options
        logits, values = self.network(states)
        log_policy = self._log_softmax(logits, logit_biases)
        ratio = (_joint_log_probability(log_policy, actions) - before).exp()
        gain = clipped_objective(ratio, advantage, options.clip)
        error = (values - returns).square().mean()
        # A mean over knobs, so that its weight does not depend on their number.
        entropy_bonus = -(log_policy.exp() * log_policy).sum(dim=-1).mean()
        loss = options.value_coefficient * error - gain - entropy * entropy_bonus
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()

    def _log_softmax(self, logits: Tensor, logit_biases: Tensor) -> Tensor:
        scaled = logits / self._options.temperature + logit_biases
        # log_softmax of torch takes twice as long for three or four actions.
        scaled = scaled - scaled.detach().amax(dim=-1, keepdim=True)
        return scaled - scaled.exp().sum(dim=-1, keepdim=True).log()


def _joint_log_probability(log_policy: Tensor, actions: Tensor) -> Tensor:
    """The log-probability of all knobs' chosen actions together, shape (n,)."""
    chosen = log_policy.gather(-1, actions.unsqueeze(-1))
    joint: Tensor = chosen.squeeze(-1).sum(dim=-1)
    return joint


def masked_bias(allowed: Tensor, bias: Tensor) -> Tensor:
    """The logit bias of each allowed action, and -1e9 for all others, shape (n, knobs, actions)."""
    return torch.where(allowed, bias, _FORBIDDEN)


_LAST_PLACES = 8
"""Numbers that differ by at most this many units in the last place count as equal."""


def advantages(
    rewards: Tensor, values: Tensor, not_done: Tensor, *, discount: float, decay: float
) -> Tensor:
    """Generalised advantage estimation (Schulman et al., 2016, equation 16).

    ``rewards``, ``not_done`` and the result have shape (steps, episodes), and the critic's
    ``values`` (steps + 1, episodes). Steps after the end of an episode do not affect earlier
    advantages.
    """
    errors = rewards + discount * not_done * values[1:] - values[:-1]
    decays = discount * decay * not_done
    out = torch.empty_like(errors)
    advantage = torch.zeros_like(errors[0])
    for step in range(len(errors) - 1, -1, -1):
        advantage = errors[step] + decays[step] * advantage
        out[step] = advantage
    return out


def standardise(advantage: Tensor) -> Tensor:
    """Scale numbers to mean 0 and standard deviation 1; zeros if all are equal."""
    centred = advantage - advantage.mean()
    deviation = centred.square().mean().sqrt()
    # The mean of equal numbers may differ from them by rounding errors.
    if deviation <= _LAST_PLACES * torch.finfo(advantage.dtype).eps * advantage.abs().max():
        return torch.zeros_like(advantage)
    return centred / (deviation + 1e-8)
