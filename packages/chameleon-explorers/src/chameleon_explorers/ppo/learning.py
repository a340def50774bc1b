"""The agent: a policy that acts, and the clipped objective by which it learns."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from chameleon_explorers.ppo.networks import ActorCritic
from chameleon_explorers.ppo.options import PPOOptions

_NEVER = -1e9
"""The logit of an action that is masked."""


@attrs.frozen(kw_only=True, eq=False)
class Rollout:
    """Transitions of all episodes between two updates, in the order they were made.

    Attributes:
        states: shape (steps, episodes, ...).
        shifts: what is added to the logits: masks and the prior, (steps, episodes, knobs, actions).
        actions: shape (steps, episodes, knobs).
        log_probabilities: of the joint actions when they were taken, shape (steps, episodes).
        values: of the states, and of those after the last step, shape (steps + 1, episodes).
        rewards: shape (steps, episodes).
        alive: 1 if the episode had not ended before the step, shape (steps, episodes).
        goes_on: 1 if it had not ended after it either, shape (steps, episodes).
    """

    states: Tensor
    shifts: Tensor
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    rewards: Tensor
    alive: Tensor
    goes_on: Tensor


def clipped_objective(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The surrogate objective, to be maximised (Schulman et al., 2017, equation 7).

    Args:
        ratio: probability of each action now, over that when it was taken, shape (n,).
        advantage: of each action, shape (n,).
        clip: how far from 1 a ratio is of use.
    """
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    return torch.minimum(ratio * advantage, clipped * advantage).mean()


class Agent:
    """An actor-critic with its optimizer and its generator; kept as long as it is to learn.

    Args:
        network: the actor-critic.
        options: the hyper-parameters.
        generator: draws actions and minibatches.
    """

    def __init__(
        self, network: ActorCritic, options: PPOOptions, generator: torch.Generator
    ) -> None:
        self.network = network
        self._options = options
        self._generator = generator
        self._optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)

    def act(self, states: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw actions.

        Args:
            states: shape (n, ...).
            shifts: added to the logits, shape (n, knobs, actions).

        Returns:
            Actions of shape (n, knobs), log-probabilities of the joint actions and values, both
            of shape (n,).
        """
        with torch.no_grad():
            logits, values = self.network(states)
            every = self._log_softmax(logits, shifts)
            # Gumbel's trick: one draw per logit and a maximum, far quicker than `multinomial`.
            uniform = torch.rand(every.shape, generator=self._generator).clamp_min_(1e-20)
            actions = (every - (-uniform.log()).log()).argmax(dim=-1)
            return actions, _joint(every, actions), values

    def values(self, states: Tensor) -> Tensor:
        """The critic's estimates, shape (n,)."""
        with torch.no_grad():
            values: Tensor = self.network(states)[1]
        return values

    def learn(self, rollout: Rollout, entropy: float) -> None:
        """Some epochs of gradient steps on a rollout.

        Args:
            rollout: what happened.
            entropy: weight of the entropy bonus.
        """
        options = self._options
        advantage = advantages(
            rollout.rewards,
            rollout.values,
            rollout.goes_on,
            discount=options.discount,
            decay=options.gae,
        )
        lived = rollout.alive.flatten().nonzero().squeeze(-1)
        if not len(lived):
            return
        returns = (advantage + rollout.values[:-1]).flatten()[lived]
        data = (
            rollout.states.flatten(0, 1)[lived],
            rollout.shifts.flatten(0, 1)[lived],
            rollout.actions.flatten(0, 1)[lived],
            rollout.log_probabilities.flatten()[lived],
            standardised(advantage.flatten()[lived]),
            returns,
        )
        size = options.minibatch
        for _ in range(options.epochs):
            if size is None or size >= len(lived):
                self._descend(data, entropy)
                continue
            for _ in range(-(-len(lived) // size)):
                rows = torch.randint(len(lived), (size,), generator=self._generator)
                self._descend(tuple(column[rows] for column in data), entropy)

    def _descend(self, transitions: tuple[Tensor, ...], entropy: float) -> None:
        """One gradient step on the loss of equation 9 of the PPO paper."""
        states, shifts, actions, before, advantage, returns = transitions
        options = self._options
        logits, values = self.network(states)
        every = self._log_softmax(logits, shifts)
        ratio = (_joint(every, actions) - before).exp()
        gain = clipped_objective(ratio, advantage, options.clip)
        error = (values - returns).square().mean()
        # Per knob, so that its weight means the same whatever the number of knobs.
        disorder = -(every.exp() * every).sum(dim=-1).mean()
        loss = options.value_coefficient * error - gain - entropy * disorder
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()

    def _log_softmax(self, logits: Tensor, shifts: Tensor) -> Tensor:
        scaled = logits / self._options.temperature + shifts
        # Torch's own takes twice as long over the three or four actions of a knob.
        scaled = scaled - scaled.detach().amax(dim=-1, keepdim=True)
        return scaled - scaled.exp().sum(dim=-1, keepdim=True).log()


def _joint(every: Tensor, actions: Tensor) -> Tensor:
    """Log-probability that all knobs act as they did, shape (n,)."""
    chosen = every.gather(-1, actions.unsqueeze(-1))
    joint: Tensor = chosen.squeeze(-1).sum(dim=-1)
    return joint


def masked(allowed: Tensor, bias: Tensor) -> Tensor:
    """The numbers to add to logits: the bias if an action is allowed, else never."""
    return torch.where(allowed, bias, _NEVER)


_LAST_PLACES = 8
"""By so many last places numbers may differ and be equal."""


def advantages(
    rewards: Tensor, values: Tensor, goes_on: Tensor, *, discount: float, decay: float
) -> Tensor:
    """Generalised advantage estimation (Schulman et al., 2016, equation 16).

    Args:
        rewards: of every step, shape (steps, episodes).
        values: the critic's estimates of the states before every step and after the last one,
            shape (steps + 1, episodes).
        goes_on: 1 if an episode goes on after the step and 0 if the step ended it, shape (steps,
            episodes). Steps after an end count for nothing.
        discount: of the rewards (gamma).
        decay: of the temporal differences (lambda).

    Returns:
        Advantage of every step, shape (steps, episodes). Added to the values of the states
        before the steps they are the returns that the critic is to learn.
    """
    differences = rewards + discount * goes_on * values[1:] - values[:-1]
    fading = discount * decay * goes_on
    out = torch.empty_like(differences)
    ahead = torch.zeros_like(differences[0])
    for step in range(len(differences) - 1, -1, -1):
        ahead = differences[step] + fading[step] * ahead
        out[step] = ahead
    return out


def standardised(advantage: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1; zeros if all are equal (or there is only one)."""
    centred = advantage - advantage.mean()
    deviation = centred.square().mean().sqrt()
    # The mean of equal numbers may be a few last places off; that is no difference between them.
    if deviation <= _LAST_PLACES * torch.finfo(advantage.dtype).eps * advantage.abs().max():
        return torch.zeros_like(advantage)
    return centred / (deviation + 1e-8)
