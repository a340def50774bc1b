"""Tiny networks of torch in idioms that whole networks are written in, with inputs."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import Of, ids, r


class LeftInTraining(nn.Module):
    """Modules that nobody puts into evaluation mode: ``eval`` reaches none of them."""

    def __init__(self):
        super().__init__()
        self.with_statistics = nn.BatchNorm2d(4)
        self.without = nn.BatchNorm2d(4, track_running_stats=False)
        self.plain = nn.BatchNorm1d(3, affine=False)

    def train(self, mode=True):
        del mode
        return self

    def forward(self, images, rows):
        return self.with_statistics(images) + self.without(images), self.plain(rows)


class Settings(nn.Module):
    """Inputs and outputs that are no tensors."""

    def forward(self, x, scale=1.5, *, name="x"):
        return {name: x * scale, "nothing": None, "count": 3}


def _codes(x, book):
    """Vector quantization (van den Oord et al. 2017), with the codes' perplexity."""
    index = torch.cdist(x, book).argmin(1)
    share = F.one_hot(index, 5).float().mean(0)
    return book[index], index, torch.exp(-(share * torch.log(share + 1e-10)).sum())


def _voxels(x, voxel):
    """Means and extremes of points that share a voxel."""
    to = voxel[:, None].expand(-1, 3)
    return [
        torch.ones(6, 3).scatter_reduce(0, to, x, reduce, include_self=own)
        for reduce, own in (("mean", True), ("mean", False), ("amax", False), ("sum", False))
    ]


@torch.library.custom_op("chameleon_tests::grouped_mm_fallback", mutates_args=())
def _grouped(x: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """As transformers defines it; rows behind the last group are zeros."""
    products = x.new_zeros(len(x), weights.shape[2])
    for start, end, matrix in zip([0, *offs.tolist()], offs.tolist(), weights, strict=False):
        products[start:end] = x[start:end] @ matrix
    return products


@_grouped.register_fake
def _(x: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return x.new_empty(len(x), weights.shape[2])


def _experts(x, scores, weights):
    """A mixture of experts (Shazeer et al. 2017), of which one has no row."""
    groups, order = torch.topk(scores, 2, dim=-1, sorted=False)[1].sum(-1).sort()
    counts = torch.histc(groups.float(), bins=len(weights), min=0, max=len(weights) - 1)
    ends = counts.cumsum(0, dtype=torch.int32)
    return _grouped(x[order], weights, ends), _grouped(x, weights, ends // 2), torch.histc(x, 5)


def _largest(x):
    mask = torch.zeros(3, 4, dtype=torch.bool).scatter(1, x.topk(2, 1).indices, value=True)
    return mask, mask.amax(0), x.masked_fill(~mask, -torch.inf).softmax(1)


def _branches(x, n):
    return torch.cond(n > 0, lambda x, n: (x // n, x.exp()), lambda x, n: (x - n, x * 2.0), (x, n))


def _maxima(x, n):
    return torch.cond(n > 0, _places_of_maxima, lambda x: _places_of_maxima(-x), (x,))


def _places_of_maxima(x):
    values, places = F.max_pool2d(x, 2, return_indices=True)
    return values.flatten(), places.flatten()


IDIOMS = {
    "left in training": lambda: (LeftInTraining(), (r(2, 4, 5, 5), r(6, 3))),
    "settings": lambda: (Settings(), (r(2, 3),)),
    "codes": lambda: (Of(_codes), (r(7, 3), r(5, 3))),
    "voxels": lambda: (Of(_voxels), (r(9, 3), ids(4, 9))),
    "powers of integers": lambda: (
        Of(lambda x, n: (0.9**n, 2**n, x.abs() ** n, n**n, n**2.5, n**2)),
        (r(4), ids(4, 4)),
    ),
    "experts": lambda: (Of(_experts), (r(9, 8), r(9, 4), r(7, 8, 3))),
    "function of bool": lambda: (Of(lambda x: torch.tanh((x > 0).float() * x)), (r(64),)),
    "places among least numbers": lambda: (Of(lambda x: (x - torch.inf).argmax(1)), (r(3, 4),)),
    "numbers of bool": lambda: (
        Of(lambda x: ((x > 0) * (x < 1), (x > 0) + (x < -1), torch.maximum(x > 1, x < 0))),
        (r(3, 4),),
    ),
    "mask of the largest numbers": lambda: (Of(_largest), (r(3, 4),)),
    "fractions of integers": lambda: (
        Of(lambda n: (1 / n, n.exp(), torch.tanh(n > 2), n.isnan(), n.sqrt() / n, n.float() / n)),
        (ids(9, 5) + 1,),
    ),
    "branches, and a division by 0 in the other one": lambda: (Of(_branches), (ids(9, 3), ids(1))),
    "places of maxima in branches": lambda: (Of(_maxima), (r(1, 2, 4, 4), ids(2))),
    "no axes": lambda: (Of(lambda x, s: (x.mean() * s, s + 1, x[0, 0])), (r(3, 4), r())),
}
