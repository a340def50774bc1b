"""The actor-critics. Their weights are drawn from a generator, never from torch's global one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class ActorCritic(nn.Module, ABC):
    """A policy and a value of states.

    Calling it with states of shape (n, ...) gives logits of shape (n, knobs, actions) and values
    of shape (n,).
    """

    @abstractmethod
    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values."""


class SharedActorCritic(ActorCritic):
    """The paper's network: one first layer under a policy head and a value head (section 3.2)."""

    def __init__(self, knobs: int, actions: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._heads = knobs, actions
        self.first = _linear(knobs, width, generator)
        self.policy = _linear(width, knobs * actions, generator, gain=0.01)
        self.value = _linear(width, 1, generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.first(states))
        return self.policy(hidden).view(-1, *self._heads), self.value(hidden).squeeze(-1)


class SeparateActorCritic(ActorCritic):
    """The released code's networks: a policy of two layers and heads of one, a value of three."""

    def __init__(self, knobs: int, actions: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._heads = knobs, actions
        self.policy = nn.Sequential(
            _linear(knobs, width, generator),
            nn.Tanh(),
            _linear(width, width, generator),
            nn.Tanh(),
            _linear(width, knobs * actions, generator),
            nn.Tanh(),
        )
        # A head of its own for every knob, from `actions` to `actions` units.
        heads = [_linear(actions, actions, generator) for _ in range(knobs)]
        self.head_weights = nn.Parameter(torch.stack([head.weight.detach() for head in heads]))
        self.head_biases = nn.Parameter(torch.zeros(knobs, actions))
        self.value = nn.Sequential(
            _linear(knobs, width, generator),
            nn.Tanh(),
            _linear(width, width, generator),
            nn.Tanh(),
            _linear(width, width, generator),
            nn.Tanh(),
            _linear(width, 1, generator),
        )

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.policy(states).view(-1, *self._heads)
        logits = torch.einsum("nka,kba->nkb", hidden, self.head_weights) + self.head_biases
        return logits, self.value(states).squeeze(-1)


class TokenActorCritic(ActorCritic):
    """A network over knob tokens: its weights are shared by all knobs, so it fits any space.

    Every token is embedded. A second layer sees the token beside the mean of all, and so knows the
    rest of the configuration. Heads give the token's logits, and the mean's value.

    Args:
        features: width of a token.
        actions: actions per knob.
        width: units of a hidden layer.
        generator: draws the weights.
    """

    def __init__(self, features: int, actions: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = _linear(features, width, generator)
        self.own = _linear(width, width, generator)
        self.others = _linear(width, width, generator)
        self.policy = _linear(width, actions, generator, gain=0.01)
        self.value = _linear(width, 1, generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.first(states))
        pooled = self.others(hidden.mean(dim=1))
        seen = torch.relu(self.own(hidden) + pooled.unsqueeze(1))
        value = self.value(torch.relu(pooled)).squeeze(-1)
        return self.policy(seen), value


def stay_bias(knobs: int, actions: int, moves: float) -> float:
    """The bias on staying with which a uniform policy moves ``moves`` knobs a step.

    0 if ``moves`` is 0, which leaves every action equally likely.
    """
    if not moves:
        return 0.0
    moving = min(moves / knobs, (actions - 1) / actions)
    return math.log((1.0 - moving) / moving * (actions - 1))


def _linear(
    inputs: int, outputs: int, generator: torch.Generator, *, gain: float = 1.0
) -> nn.Linear:
    """A layer with orthogonal weights and no bias to begin with."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
        layer.bias.zero_()
    return layer
