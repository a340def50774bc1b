"""What a network is trained by: regression, its own uncertainty, and the order within a task."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_SHARPNESS = 3.0
"""How much of a pair's difference, in standard deviations, counts as told apart (as ``1 / 3``)."""


def centred(values: Tensor) -> Tensor:
    """Values less the mean of their row, shape (tasks, n)."""
    return values - values.mean(dim=1, keepdim=True)


def regression(mean: Tensor, wanted: Tensor) -> Tensor:
    """Huber's loss, for the slowest configurations are slow without bound."""
    return functional.smooth_l1_loss(mean, wanted)


def uncertainty(mean: Tensor, log_variance: Tensor, wanted: Tensor) -> Tensor:
    """The negative logarithm of the normal density, for the variance alone.

    The mean learns nothing from it: it would neglect what is hard to predict (Seitzer et al.
    2022, section 3).
    """
    error = (wanted - mean.detach()) ** 2
    return 0.5 * (log_variance + error * torch.exp(-log_variance)).mean()


def ranking(mean: Tensor, wanted: Tensor, task: Tensor) -> Tensor:
    """The pairwise logistic loss (Burges et al. 2005) within tasks.

    Pairs weigh as much as they differ, at most one standard deviation.

    Args:
        mean: predictions, shape (n,).
        wanted: targets, shape (n,).
        task: which task each is of, shape (n,).
    """
    apart = wanted[:, None] - wanted[None, :]
    counts = (task[:, None] == task[None, :]) & (apart > 0.0)
    weight = torch.where(counts, apart.clamp(max=1.0), torch.zeros_like(apart))
    loss = functional.softplus(-_SHARPNESS * (mean[:, None] - mean[None, :]))
    return (weight * loss).sum() / weight.sum().clamp(min=1e-6)


__all__ = ["centred", "ranking", "regression", "uncertainty"]
