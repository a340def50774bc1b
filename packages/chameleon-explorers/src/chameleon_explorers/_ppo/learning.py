"""The agent of the PPO explorer, and the clipped objective by which the agent learns."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from chameleon_explorers._ppo.networks import ActorCritic
from chameleon_explorers._ppo.options import PPOOptions

_NEVER = -1e9
"""The logit of an action that is not allowed."""


@attrs.frozen(kw_only=True, eq=False)
class Rollout:
    """The transitions of all episodes between two updates of the agent, in order of time.

    Attributes:
        states: The states before each step, shape (steps, episodes, ...).
        shifts: Numbers that are added to the network's logits, shape (steps, episodes, knobs,
            actions). They exclude impossible actions, and make staying more or less likely.
        actions: The chosen action of each knob, shape (steps, episodes, knobs).
        log_probabilities: The log-probability of all actions of a step together, when they were
            chosen, shape (steps, episodes).
        values: The critic's estimates before each step and after the last step, shape (steps + 1,
            episodes).
        rewards: The reward of each step, shape (steps, episodes).
        alive: 1 if the episode had not ended before the step, shape (steps, episodes).
        goes_on: 1 if the episode had not ended after the step either, shape (steps, episodes).
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
    """The surrogate objective of PPO, to be maximised (Schulman et al., 2017, equation 7).

    ``ratio`` is the current probability of each action over its probability when it was chosen,
    shape (n,). ``advantage`` is the advantage of each action, shape (n,).
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

    def act(self, states: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw actions at random from the policy.

        Args:
            states: The states, shape (n, ...).
            shifts: Numbers that are added to the logits, shape (n, knobs, actions).

        Returns:
            The actions, shape (n, knobs); the log-probability of all actions of a state together,
            shape (n,); and the critic's values, shape (n,).
        """
        with torch.no_grad():
            logits, values = self.network(states)
            every = self._log_softmax(logits, shifts)
            # Gumbel's trick: one draw per logit and a maximum, far quicker than `multinomial`.
            uniform = torch.rand(every.shape, generator=self._generator).clamp_min_(1e-20)
            actions = (every - (-uniform.log()).log()).argmax(dim=-1)
            return actions, _joint(every, actions), values

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
        """Take one gradient step on PPO's loss (Schulman et al., 2017, equation 9)."""
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
    """The log-probability of all knobs' chosen actions together, shape (n,)."""
    chosen = every.gather(-1, actions.unsqueeze(-1))
    joint: Tensor = chosen.squeeze(-1).sum(dim=-1)
    return joint


def masked(allowed: Tensor, bias: Tensor) -> Tensor:
    """The numbers to add to logits, so that forbidden actions have no probability.

    Args:
        allowed: Whether each action is allowed, shape (n, knobs, actions).
        bias: The bias of each action, shape (actions,) or a shape that broadcasts to ``allowed``.
    """
    return torch.where(allowed, bias, _NEVER)


_LAST_PLACES = 8
"""Numbers that differ by at most this many units in the last place count as equal."""


def advantages(
    rewards: Tensor, values: Tensor, goes_on: Tensor, *, discount: float, decay: float
) -> Tensor:
    """How much better each step was than the critic expected, counting later steps less.

    This is generalised advantage estimation (Schulman et al., 2016, equation 16).

    ``rewards`` is the reward of every step, shape (steps, episodes). ``values`` has the critic's
    estimates of the states before every step and after the last one, shape (steps + 1, episodes).
    ``goes_on`` is 1 if an episode continues after the step and 0 if the step ended it, shape
    (steps, episodes). Steps after the end of an episode do not affect earlier advantages.

    Returns:
        The advantage of every step, shape (steps, episodes). An advantage plus the value of the
        state before the step is the return that the critic learns.
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
    """Scale numbers to mean 0 and standard deviation 1; zeros if all are equal.

    Args:
        advantage: The numbers, in a tensor of any shape.
    """
    centred = advantage - advantage.mean()
    deviation = centred.square().mean().sqrt()
    # The mean of equal numbers may be a few last places off; that is no difference between them.
    if deviation <= _LAST_PLACES * torch.finfo(advantage.dtype).eps * advantage.abs().max():
        return torch.zeros_like(advantage)
    return centred / (deviation + 1e-8)
