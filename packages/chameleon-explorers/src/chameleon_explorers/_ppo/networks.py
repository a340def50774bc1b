"""The actor-critic networks. A generator of the caller draws the weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class ActorCritic(nn.Module, ABC):
    """A network that computes a policy and a value for each state."""

    @abstractmethod
    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, knobs, actions) and values (n,) of states (n, ...)."""


class SharedActorCritic(ActorCritic):
    """The network of Ahn et al. (2020, section 3.2): policy and value share a first layer."""

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
    """Separate networks for policy and value, as in the code released with Ahn et al. (2020)."""

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
    """A network with one input token per knob and shared weights, which fits any design space."""

    def __init__(self, features: int, actions: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = _linear(features, width, generator)
        self.token_layer = _linear(width, width, generator)
        self.pool_layer = _linear(width, width, generator)
        self.policy = _linear(width, actions, generator, gain=0.01)
        self.value = _linear(width, 1, generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.first(states))
        pooled = self.pool_layer(hidden.mean(dim=1))
        hidden = torch.relu(self.token_layer(hidden) + pooled.unsqueeze(1))
        value = self.value(torch.relu(pooled)).squeeze(-1)
        return self.policy(hidden), value


def stay_bias(knobs: int, actions: int, moves: float) -> float:
    """The logit bias of staying with which an untrained policy moves ``moves`` knobs per step."""
    if not moves:
        return 0.0
    moving = min(moves / knobs, (actions - 1) / actions)
    return math.log((1.0 - moving) / moving * (actions - 1))


def _linear(
    inputs: int, outputs: int, generator: torch.Generator, *, gain: float = 1.0
) -> nn.Linear:
    """A linear layer with random orthogonal weights and a bias of zero."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
        layer.bias.zero_()
    return layer
