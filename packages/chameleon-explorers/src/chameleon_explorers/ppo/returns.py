"""Generalised advantage estimation, for all episodes at once."""

from __future__ import annotations

import torch
from torch import Tensor

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
        goes_on: 1 where an episode goes on after the step and 0 where the step ended it, shape
            (steps, episodes). What comes after an end counts for nothing.
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
    """Mean 0 and standard deviation 1; zeros where all are equal (or there is only one)."""
    centred = advantage - advantage.mean()
    deviation = centred.square().mean().sqrt()
    # The mean of equal numbers may be a few last places off; that is no difference between them.
    if deviation <= _LAST_PLACES * torch.finfo(advantage.dtype).eps * advantage.abs().max():
        return torch.zeros_like(advantage)
    return centred / (deviation + 1e-8)
