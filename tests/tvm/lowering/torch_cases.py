"""Tiny networks of torch, one operator or idiom each, with inputs to check them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

Case = tuple[nn.Module, tuple[Any, ...]]


class Of(nn.Module):
    """A function as a network.

    Args:
        function: of the inputs.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Cells(nn.Module):
    """A few steps of a recurrent cell, as decoders write them."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(5, 6)

    def forward(self, x: torch.Tensor) -> Any:
        state = None
        for step in x.unbind(0):
            state = self.cell(step, state)
        return state


class Mask(nn.Module):
    """Attention with a buffer of booleans as its mask, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(6, 6, dtype=torch.bool)))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / 2.0
        scores = torch.where(self.mask, scores, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, -1) @ v


class WithEmbedding(nn.Module):
    """Token and position embeddings, added."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8, padding_idx=0)
        self.places = nn.Embedding(6, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))


class SelfAttention(nn.Module):
    """``nn.MultiheadAttention`` of a sequence with itself."""

    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.weights = weights
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        found = self.attention(x, x, x, need_weights=self.weights)
        return found if self.weights else found[0]


def r(*shape: int) -> torch.Tensor:
    """Random numbers of a shape."""
    return torch.randn(shape)


def ids(below: int, *shape: int) -> torch.Tensor:
    """Random whole numbers of a shape."""
    return torch.randint(0, below, shape)


def _net(module: nn.Module, *inputs: Any) -> Case:
    return module, inputs


def _of(function: Callable[..., Any], *inputs: Any) -> Case:
    return Of(function), inputs


def _warm(module: nn.Module) -> nn.Module:
    """The module with statistics as after training."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 1.5)
    return module


CONVOLUTIONS: dict[str, Callable[[], Case]] = {
    "conv1d": lambda: _net(nn.Conv1d(4, 6, 3, stride=2, padding=1), r(2, 4, 11)),
    "conv1d grouped dilated": lambda: _net(nn.Conv1d(4, 8, 3, dilation=2, groups=2), r(1, 4, 13)),
    "conv1d depthwise": lambda: _net(nn.Conv1d(4, 4, 3, padding="same", groups=4), r(1, 4, 9)),
    "conv2d grouped": lambda: _net(nn.Conv2d(4, 8, 3, groups=2, padding=1), r(1, 4, 7, 7)),
    "conv2d dilated": lambda: _net(nn.Conv2d(4, 8, 3, dilation=2, stride=2), r(1, 4, 11, 9)),
    "conv2d asymmetric": lambda: _net(nn.Conv2d(3, 4, (1, 5), padding="same"), r(1, 3, 6, 8)),
    "conv2d reflect padding": lambda: _net(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), r(1, 3, 6, 8)
    ),
    "conv2d weights computed": lambda: _of(
        lambda x, w: F.conv2d(x, w / w.norm(), padding=1), r(1, 3, 6, 6), r(4, 3, 3, 3)
    ),
    "conv3d": lambda: _net(nn.Conv3d(3, 4, 3, padding=1, stride=(1, 2, 2)), r(1, 3, 4, 6, 6)),
    "conv3d grouped": lambda: _net(nn.Conv3d(4, 4, 3, groups=4), r(1, 4, 4, 5, 5)),
    "unbatched conv2d": lambda: _net(nn.Conv2d(3, 4, 3), r(3, 6, 6)),
    "transposed 1d": lambda: _net(nn.ConvTranspose1d(4, 6, 4, stride=2, padding=1), r(1, 4, 7)),
    "transposed 1d grouped": lambda: _net(
        nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2), r(2, 4, 5)
    ),
    "transposed 2d": lambda: _net(nn.ConvTranspose2d(4, 3, 2, stride=2), r(1, 4, 5, 6)),
    "transposed 2d padded": lambda: _net(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), r(1, 4, 5, 6)
    ),
    "transposed 2d grouped": lambda: _net(
        nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), groups=2), r(1, 4, 5, 4)
    ),
    "transposed 2d dilated": lambda: _net(
        nn.ConvTranspose2d(4, 3, 3, dilation=2, padding=1, bias=False), r(1, 4, 5, 4)
    ),
    "transposed 3d": lambda: _net(nn.ConvTranspose3d(4, 3, 2, stride=2), r(1, 4, 3, 4, 3)),
    "transposed 3d padded": lambda: _net(
        nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        r(1, 4, 2, 3, 3),
    ),
    "u-net": lambda: _net(
        _warm(
            nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.ConvTranspose2d(8, 4, 2, stride=2),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.Conv2d(4, 2, 1),
            )
        ),
        r(1, 3, 6, 6),
    ),
}

NORMALISATIONS: dict[str, Callable[[], Case]] = {
    "batch norm 1d alone": lambda: _net(_warm(nn.BatchNorm1d(6)), r(4, 6)),
    "batch norm 1d sequence": lambda: _net(_warm(nn.BatchNorm1d(6)), r(2, 6, 5)),
    "batch norm 2d alone": lambda: _net(_warm(nn.BatchNorm2d(6, affine=False)), r(2, 6, 5, 4)),
    "batch norm 3d alone": lambda: _net(_warm(nn.BatchNorm3d(3)), r(1, 3, 4, 5, 4)),
    "conv1d batch norm": lambda: _net(
        _warm(nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU())), r(1, 3, 9)
    ),
    "conv3d batch norm": lambda: _net(
        _warm(nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4))), r(1, 3, 4, 5, 5)
    ),
    "linear batch norm": lambda: _net(
        _warm(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))), r(3, 5)
    ),
    "group norm": lambda: _net(nn.GroupNorm(2, 6), r(2, 6, 5, 4)),
    "conv group norm": lambda: _net(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU()), r(1, 3, 7, 7)
    ),
    "group norm 1d": lambda: _net(nn.GroupNorm(3, 6, affine=False), r(2, 6, 5)),
    "instance norm": lambda: _net(nn.InstanceNorm2d(4, affine=True), r(2, 4, 5, 6)),
    "instance norm plain": lambda: _net(nn.InstanceNorm2d(4), r(2, 4, 5, 6)),
    "instance norm 1d": lambda: _net(nn.InstanceNorm1d(4), r(2, 4, 5)),
    "layer norm": lambda: _net(nn.LayerNorm(6), r(2, 5, 6)),
    "layer norm two axes": lambda: _net(nn.LayerNorm((5, 6)), r(2, 5, 6)),
    "layer norm plain": lambda: _net(nn.LayerNorm(6, elementwise_affine=False), r(2, 6)),
    "rms norm": lambda: _net(nn.RMSNorm(6, eps=1e-5), r(2, 5, 6)),
    "rms norm by hand": lambda: _of(
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), r(2, 5, 6)
    ),
    "local response norm": lambda: _net(nn.LocalResponseNorm(3), r(1, 6, 5, 5)),
    "normalize": lambda: _of(lambda x: F.normalize(x, dim=1), r(3, 6)),
    "weight norm": lambda: _net(
        nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), r(1, 3, 7)
    ),
}

ELEMENTWISE: dict[str, Callable[[], Case]] = {
    "pow float": lambda: _of(lambda x: x.abs().pow(1.7), r(3, 4)),
    "pow integer": lambda: _of(lambda x: torch.pow(x, 3), r(3, 4)),
    "pow float three": lambda: _of(lambda x: torch.pow(x, 3.0), r(3, 4)),
    "pow minus two": lambda: _of(lambda x: (x.abs() + 1) ** -2, r(3, 4)),
    "pow half": lambda: _of(lambda x: x.abs() ** 0.5, r(3, 4)),
    "pow of integers": lambda: _of(lambda x: x**2, ids(9, 3, 4)),
    "pow tensor": lambda: _of(lambda x, y: x.abs().pow(y), r(3, 4), r(3, 4)),
    "pow of negative by tensor": lambda: _of(lambda x: x.pow(torch.full((4,), 2.0)), r(3, 4)),
    "pow scalar base": lambda: _of(lambda x: 2.0**x, r(3, 4)),
    "gelu of gpt-2": lambda: _of(
        lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3.0)))),
        r(3, 4),
    ),
    "activations": lambda: _of(
        lambda x: torch.cat(
            [
                F.hardswish(x),
                F.hardsigmoid(x),
                F.mish(x),
                F.softplus(x),
                F.elu(x, 0.7),
                F.selu(x),
                F.silu(x),
                F.gelu(x),
                F.gelu(x, approximate="tanh"),
                torch.erf(x),
                F.leaky_relu(x, 0.1),
                F.relu6(x),
                F.hardtanh(x),
                F.celu(x, 1.3),
                F.softsign(x),
                F.logsigmoid(x),
                F.tanhshrink(x),
                F.softshrink(x),
                F.hardshrink(x),
                F.threshold(x, 0.1, 20.0),
                F.rrelu(x),
            ]
        ),
        3 * r(4, 6),
    ),
    "softplus beta": lambda: _of(lambda x: F.softplus(x, beta=2.0, threshold=3.0), 3 * r(4, 6)),
    "prelu": lambda: _net(nn.PReLU(4), r(2, 4, 3, 3)),
    "prelu one": lambda: _net(nn.PReLU(), r(2, 4)),
    "glu": lambda: _of(lambda x: F.glu(x, 1), r(2, 6, 3)),
    "functions": lambda: _of(
        lambda x: torch.cat(
            [
                x.exp(),
                torch.expm1(x),
                torch.log1p(x),
                torch.log2(x),
                torch.log10(x),
                x.sqrt(),
                x.rsqrt(),
                x.reciprocal(),
                x.sin(),
                x.cos(),
                x.tan(),
                x.sinh(),
                x.cosh(),
                x.tanh(),
                x.atan(),
                torch.asin(x / 2),
                torch.acos(x / 2),
                x.floor(),
                x.ceil(),
                x.round(),
                x.trunc(),
                x.frac(),
                x.sign(),
                x.square(),
                -x,
                x.sigmoid(),
                torch.logit(x / 4),
                torch.exp2(x),
                torch.erfc(x),
                torch.special.expit(x),
                torch.atan2(x, x + 1),
                torch.hypot(x, x),
            ]
        ),
        torch.rand(2, 5) + 0.2,
    ),
    "clamp": lambda: _of(lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + x.clamp_max(1), r(3, 4)),
    "clamp tensors": lambda: _of(
        lambda x, low: torch.clamp(x, min=low, max=low + 1), r(3, 4), r(4)
    ),
    "where": lambda: _of(lambda x, y: torch.where(x > y, x, 0.0), r(3, 4), r(3, 4)),
    "masked fill": lambda: _of(
        lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1), r(3, 4), ids(2, 3, 1) > 0
    ),
    "masked fill tensor": lambda: _of(lambda x: x.masked_fill(x > 0, torch.tensor(2.0)), r(3, 4)),
    "logic": lambda: _of(
        lambda x, y: (
            torch.logical_and(x > 0, y > 0)
            | torch.logical_not(x < y) ^ torch.logical_xor(x > 1, y > 1) & ~(x >= y)
        ),
        r(3, 4),
        r(3, 4),
    ),
    "comparisons to float": lambda: _of(
        lambda x, y: (x == y).float() + (x != y).to(x.dtype) + (x <= 0).type_as(x), r(3, 4), r(3, 4)
    ),
    "remainder": lambda: _of(
        lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 0.7) + x // 0.3, r(3, 4)
    ),
    "integer division": lambda: _of(
        lambda x: (
            torch.div(x - 4, 3, rounding_mode="floor"),
            torch.div(x - 4, 3, rounding_mode="trunc"),
            (x - 4) % 3,
            (x - 4) // 2,
            x / 2,
        ),
        ids(9, 3, 4),
    ),
    "integer bits": lambda: _of(lambda x: (x & 3) | (x << 1) ^ (x >> 1), ids(9, 3, 4)),
    "casts": lambda: _of(
        lambda x: (x * 3).int().float() + (x * 3).long().to(torch.float32) + x.bool().float(),
        r(3, 4),
    ),
    "double inside": lambda: _of(lambda x: (x.double() * 2).sum(-1).float(), r(3, 4)),
    "isnan": lambda: _of(lambda x: torch.isnan(x).float() + torch.isinf(x).float(), r(3, 4)),
    "nan to num": lambda: _of(lambda x: torch.nan_to_num(x / x.relu(), 1.0, 5.0, -5.0), r(3, 4)),
    "scalar tensors": lambda: _of(lambda x: torch.tensor(3.0) * x + torch.tensor(2), r(3, 4)),
    "rsub": lambda: _of(lambda x: 1 - x, r(3, 4)),
    "lerp": lambda: _of(lambda x, y: torch.lerp(x, y, 0.3), r(3, 4), r(3, 4)),
    "addcmul": lambda: _of(
        lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, x, y.abs() + 1, value=2),
        r(3, 4),
        r(3, 4),
    ),
    "alpha": lambda: _of(
        lambda x, y: torch.add(x, y, alpha=2) - torch.sub(y, x, alpha=3), r(3), r(3)
    ),
}

REDUCTIONS: dict[str, Callable[[], Case]] = {
    "softmax": lambda: _of(lambda x: x.softmax(1) + x.log_softmax(-1), r(2, 3, 4)),
    "softmin": lambda: _of(lambda x: F.softmin(x, 1), r(2, 3, 4)),
    "variance": lambda: _of(
        lambda x: (
            x.var(-1) + x.std(1, unbiased=False)[:, 0:1] + x.var((1, 2), keepdim=True)[:, :, 0]
        ),
        r(2, 3, 4),
    ),
    "var mean": lambda: _of(lambda x: torch.var_mean(x, -1, unbiased=False), r(2, 3, 4)),
    "means": lambda: _of(lambda x: x.mean() + x.mean(1) + x.sum(1) + x.sum(), r(2, 3, 4)),
    "extremes": lambda: _of(
        lambda x: (x.amax(1), x.amin((0, 2)), x.max(), x.min(), *x.max(1), *x.min(2)), r(2, 3, 4)
    ),
    "product": lambda: _of(lambda x: x.prod(1) + x.prod(), r(2, 3)),
    "norms": lambda: _of(
        lambda x: x.norm(dim=-1) + x.norm(p=1, dim=-1) + torch.linalg.vector_norm(x) + x.norm(),
        r(2, 3, 4),
    ),
    "frobenius": lambda: _of(torch.linalg.matrix_norm, r(2, 3, 4)),
    "norm inf": lambda: _of(lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), r(2, 3)),
    "argmax": lambda: _of(
        lambda x: (x.argmax(-1), x.argmin(1, keepdim=True), x.argmax()), r(2, 3, 4)
    ),
    "logsumexp": lambda: _of(lambda x: x.logsumexp(1), r(2, 3, 4)),
    "any all": lambda: _of(
        lambda x: ((x > 0).any(), (x > 0).all(), (x > 0).any(1), (x > -1).all(1)), r(2, 3)
    ),
    "cumulative": lambda: _of(lambda x: (x.cumsum(1), x.cumprod(-1)), r(2, 3, 4)),
    "cumsum of integers": lambda: _of(lambda x: (x != 0).int().cumsum(1).long(), ids(3, 2, 6)),
    "topk": lambda: _of(lambda x: torch.topk(x, 3, dim=-1), r(2, 7)),
    "topk smallest": lambda: _of(lambda x: torch.topk(x, 2, dim=1, largest=False), r(2, 7, 3)),
    "sort": lambda: _of(lambda x: (*torch.sort(x, 1), torch.sort(x, 1, True).values), r(2, 7)),
    "argsort": lambda: _of(lambda x: x.argsort(-1, descending=True), r(2, 7)),
    "median": lambda: _of(lambda x: x.median(1).values, r(2, 7)),
    "count nonzero": lambda: _of(lambda x: torch.count_nonzero(x > 0, 1), r(2, 7)),
    "cosine similarity": lambda: _of(lambda x, y: F.cosine_similarity(x, y, 1), r(2, 7), r(2, 7)),
    "distances": lambda: _of(torch.cdist, r(2, 5, 3), r(2, 4, 3)),
}

INDEXING: dict[str, Callable[[], Case]] = {
    "gather": lambda: _of(lambda x, i: x.gather(1, i), r(3, 5), ids(5, 3, 4)),
    "gather other axis": lambda: _of(lambda x, i: x.gather(0, i), r(3, 5), ids(3, 2, 5)),
    "gather narrower": lambda: _of(lambda x, i: x.gather(1, i), r(3, 5, 4), ids(5, 2, 3, 2)),
    "index select": lambda: _of(lambda x, i: x.index_select(1, i), r(3, 5), ids(5, 4)),
    "index": lambda: _of(lambda x, i: x[i], r(5, 3), ids(5, 2, 4)),
    "select": lambda: _of(lambda x: x[:, 2], r(4, 5, 2)),
    "select the last": lambda: _of(lambda x: x[:, -1], r(4, 5, 2)),
    "select along the last": lambda: _of(lambda x: x.select(-1, -2), r(4, 5, 3)),
    "index negative": lambda: _of(lambda x, i: x[:, i - 3], r(4, 5, 2), ids(5, 3)),
    "index two": lambda: _of(lambda x, i, j: x[i, j], r(5, 4, 3), ids(5, 2), ids(4, 2)),
    "index apart": lambda: _of(lambda x, i, j: x[i, :, j], r(5, 4, 3), ids(5, 2), ids(3, 2)),
    "index broadcast": lambda: _of(
        lambda x, i: x[torch.arange(3)[:, None], i], r(3, 5), ids(5, 3, 2)
    ),
    "index put": lambda: _of(
        lambda x, y: torch.index_put(x, (torch.tensor([0, 2]),), y), r(4, 3), r(2, 3)
    ),
    "assigned slice": lambda: _of(_assigned, r(4, 6)),
    "scatter": lambda: _of(
        lambda x, i, y: x.scatter(1, i, y), r(3, 5), _distinct(3, 5, 2), r(3, 2)
    ),
    "scatter value": lambda: _of(lambda x, i: x.scatter(1, i, 9.0), r(3, 5), _distinct(3, 5, 2)),
    "scatter add": lambda: _of(
        lambda x, i, y: x.scatter_add(1, i, y), r(3, 5), ids(5, 3, 4), r(3, 4)
    ),
    "scatter reduce": lambda: _of(
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"), r(3, 5), ids(5, 3, 4), r(3, 4)
    ),
    "index add": lambda: _of(lambda x, i, y: x.index_add(0, i, y), r(5, 3), ids(5, 4), r(4, 3)),
    "take along": lambda: _of(lambda x: torch.take_along_dim(x, x.argsort(1), 1), r(3, 5)),
    "embedding": lambda: _net(WithEmbedding(), ids(11, 2, 6)),
    "bags of one size": lambda: _net(nn.EmbeddingBag(9, 4, mode="mean"), ids(9, 3, 5)),
    "largest of bags": lambda: _net(nn.EmbeddingBag(9, 4, mode="max"), ids(9, 3, 5)),
    "bags with a padding": lambda: _net(
        nn.EmbeddingBag(9, 4, mode="mean", padding_idx=0), ids(9, 3, 5)
    ),
    "sums of bags": lambda: _net(Bags(mode="sum"), ids(9, 5), r(5)),
    "means of bags": lambda: _net(Bags(mode="mean", include_last_offset=True), ids(9, 5)),
    "largest of any bags": lambda: _net(Bags(mode="max"), ids(9, 5)),
    "one hot": lambda: _of(lambda i: F.one_hot(i, 6), ids(6, 2, 3)),
    "one hot float": lambda: _of(
        lambda i: F.one_hot(i, 6).float() @ torch.ones(6, 2), ids(6, 2, 3)
    ),
    "triangles": lambda: _of(lambda x: (x.tril(), x.triu(1), x.tril(-1)), r(2, 4, 5)),
    "made inside": lambda: _of(
        lambda x: (
            torch.arange(4)
            + torch.full((3, 4), 2.0) * x
            + torch.zeros_like(x)
            + x.new_ones(4)
            + torch.linspace(0, 1, 4)
            + torch.eye(3, 4)
            + x.new_full((1,), 3.0)
            + torch.ones_like(x)
            + torch.full_like(x, 0.5)
            + x.new_zeros(3, 1)
            + torch.arange(1, 9, 2, dtype=torch.float32)
        ),
        r(3, 4),
    ),
    "causal mask": lambda: _of(
        lambda x: x + torch.full((4, 4), float("-inf")).triu(1).clamp(min=-1e9), r(2, 4, 4)
    ),
    "searchsorted": lambda: _of(
        lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), r(3, 4)
    ),
    "relative position": lambda: _of(_relative, r(2, 4, 4)),
    "meshgrid": lambda: _of(lambda x: torch.stack(torch.meshgrid(x, x * 2, indexing="ij")), r(4)),
}


def _assigned(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:3] = 0.0
    y[2] = x[0] * 2
    return y


def _distinct(rows: int, below: int, count: int) -> torch.Tensor:
    return torch.stack([torch.randperm(below)[:count] for _ in range(rows)])


def _relative(x: torch.Tensor) -> torch.Tensor:
    """Buckets of distances, as in T5."""
    place = torch.arange(4)
    distance = (place[None, :] - place[:, None]).abs()
    large = 2 + (torch.log(distance.float() / 2 + 1e-6) / 2 * 3).to(torch.long)
    bucket = torch.where(distance < 2, distance, torch.min(large, torch.full_like(large, 4)))
    return x + F.embedding(bucket, torch.ones(5, 1)).squeeze(-1)


MOVES: dict[str, Callable[[], Case]] = {
    "views": lambda: _of(
        lambda x: x.view(2, -1).reshape(-1, 4).unsqueeze(-2).transpose(-1, -3).flatten(-2),
        r(2, 3, 4),
    ),
    "permutes": lambda: _of(
        lambda x: x.permute(0, -1, 1).movedim(0, -1).swapaxes(0, 1).contiguous().mT, r(2, 3, 4)
    ),
    "split": lambda: _of(
        lambda x: (*x.split(2, 1), *x.chunk(3, -1), *x.split([1, 4], 1), *x.unbind(0)), r(2, 5, 6)
    ),
    "joins": lambda: _of(
        lambda x, y: (torch.stack([x, y], -1), torch.cat([x, y], -2), torch.hstack([x, y])),
        r(2, 3),
        r(2, 3),
    ),
    "slices": lambda: _of(
        lambda x: (x[:, 1:-1], x[..., ::2], x[1], x[:, -2:], x[None, :, 0], x.narrow(1, 1, 2)),
        r(2, 5, 6),
    ),
    "expand": lambda: _of(
        lambda x: x[:, None].expand(-1, 3, -1) + x.unsqueeze(1).expand(2, 3, 4), r(2, 4)
    ),
    "broadcast to": lambda: _of(lambda x: torch.broadcast_to(x, (3, 2, 4)) * 1, r(2, 4)),
    "repeat": lambda: _of(
        lambda x: (
            x.repeat(2, 3),
            x.tile(2),
            x.repeat_interleave(3, 1),
            torch.repeat_interleave(x, 2),
        ),
        r(2, 4),
    ),
    "roll": lambda: _of(lambda x: x.roll((1, -1), (1, 2)) + x.roll(2, 1), r(2, 4, 5)),
    "roll flat": lambda: _of(lambda x: x.roll(3), r(2, 4)),
    "flip": lambda: _of(lambda x: x.flip((1, 2)) + x.flip(0), r(2, 4, 5)),
    "rot90": lambda: _of(lambda x: torch.rot90(x, 1, (1, 2)), r(2, 4, 4)),
    "pad constant": lambda: _of(
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0)), r(2, 3, 4)
    ),
    "pad crops": lambda: _of(lambda x: F.pad(x, (-1, 1)), r(2, 3, 4)),
    "pad reflect": lambda: _of(lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"), r(1, 2, 5, 4)),
    "pad reflect 1d": lambda: _of(lambda x: F.pad(x, (2, 1), mode="reflect"), r(1, 2, 5)),
    "pad replicate": lambda: _of(lambda x: F.pad(x, (1, 2, 1, 0), mode="replicate"), r(1, 2, 5, 4)),
    "pad circular": lambda: _of(lambda x: F.pad(x, (1, 2, 1, 0), mode="circular"), r(1, 2, 5, 4)),
    "unfold": lambda: _of(lambda x: F.unfold(x, 3, padding=1, stride=2), r(1, 3, 6, 6)),
    "fold": lambda: _of(lambda x: F.fold(x, (4, 4), 2, stride=2), r(1, 12, 4)),
    "fold overlapping": lambda: _of(
        lambda x: F.fold(x, (5, 5), 3, padding=1, stride=2), r(1, 18, 9)
    ),
    "tensor unfold": lambda: _of(lambda x: x.unfold(1, 3, 2), r(2, 7)),
    "pixel shuffle": lambda: _of(lambda x: F.pixel_shuffle(x, 2), r(1, 8, 3, 4)),
    "pixel unshuffle": lambda: _of(lambda x: F.pixel_unshuffle(x, 2), r(1, 2, 6, 4)),
    "channel shuffle": lambda: _of(lambda x: F.channel_shuffle(x, 2), r(1, 6, 3, 4)),
    "squeeze": lambda: _of(lambda x: x.squeeze(), r(1, 3, 1, 4)),
    "diagonal": lambda: _of(
        lambda x: (torch.diagonal(x, dim1=1, dim2=2), torch.diag_embed(x[:, 0])), r(2, 4, 4)
    ),
    "unflatten": lambda: _of(lambda x: x.unflatten(1, (2, -1)), r(2, 6)),
    "as strided": lambda: _of(lambda x: x.as_strided((2, 3), (3, 1)), r(2, 3)),
    "slice scatter": lambda: _of(lambda x, y: torch.slice_scatter(x, y, 1, 1, 3), r(2, 5), r(2, 2)),
    "select scatter": lambda: _of(lambda x, y: torch.select_scatter(x, y, 1, 2), r(2, 5), r(2)),
    "window partition": lambda: _of(
        lambda x: x.view(1, 2, 2, 2, 2, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 3),
        r(1, 4, 4, 3),
    ),
}

IMAGES: dict[str, Callable[[], Case]] = {
    "nearest": lambda: _of(lambda x: F.interpolate(x, scale_factor=2), r(1, 3, 4, 5)),
    "nearest size": lambda: _of(lambda x: F.interpolate(x, size=(7, 9)), r(1, 3, 4, 5)),
    "nearest exact": lambda: _of(
        lambda x: F.interpolate(x, size=(7, 9), mode="nearest-exact"), r(1, 3, 4, 5)
    ),
    "nearest down": lambda: _of(lambda x: F.interpolate(x, scale_factor=0.5), r(1, 3, 6, 8)),
    "nearest 1d": lambda: _of(lambda x: F.interpolate(x, scale_factor=2), r(1, 3, 5)),
    "nearest 3d": lambda: _of(lambda x: F.interpolate(x, scale_factor=2), r(1, 2, 3, 2, 3)),
    "linear 1d": lambda: _of(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), r(1, 3, 5)),
    "bilinear": lambda: _of(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), r(1, 3, 4, 5)
    ),
    "bilinear aligned": lambda: _of(
        lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True), r(1, 3, 4, 5)
    ),
    "bilinear down": lambda: _of(
        lambda x: F.interpolate(x, size=(3, 2), mode="bilinear"), r(1, 3, 7, 8)
    ),
    "bilinear antialias": lambda: _of(
        lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), r(1, 3, 7, 8)
    ),
    "bicubic": lambda: _of(
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), r(1, 3, 4, 5)
    ),
    "bicubic aligned": lambda: _of(
        lambda x: F.interpolate(x, size=(6, 7), mode="bicubic", align_corners=True), r(1, 3, 4, 5)
    ),
    "trilinear": lambda: _of(
        lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), r(1, 2, 3, 4, 3)
    ),
    "area": lambda: _of(lambda x: F.interpolate(x, size=(3, 2), mode="area"), r(1, 3, 7, 8)),
    "conv upsample conv": lambda: _net(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(4, 2, 3, padding=1),
            nn.PixelShuffle(1),
        ),
        r(1, 3, 5, 4),
    ),
    "grid sample": lambda: _of(
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), r(1, 3, 5, 6), r(1, 4, 3, 2)
    ),
    "grid sample border": lambda: _of(
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
        r(1, 3, 5, 6),
        r(1, 4, 3, 2),
    ),
    "grid sample nearest": lambda: _of(
        lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
        r(1, 3, 5, 6),
        r(1, 4, 3, 2),
    ),
    "affine grid": lambda: _of(
        lambda t: F.affine_grid(t, [1, 3, 4, 5], align_corners=False), r(1, 2, 3)
    ),
    "adaptive average": lambda: _of(
        lambda x: F.adaptive_avg_pool2d(x, 1).sum() + F.adaptive_avg_pool2d(x, (3, 2)),
        r(1, 3, 6, 4),
    ),
    "adaptive average uneven": lambda: _of(
        lambda x: F.adaptive_avg_pool2d(x, (3, 4)), r(1, 3, 7, 6)
    ),
    "adaptive average wider": lambda: _of(lambda x: F.adaptive_avg_pool2d(x, 7), r(1, 3, 4, 4)),
    "adaptive average 1d": lambda: _of(lambda x: F.adaptive_avg_pool1d(x, 3), r(1, 3, 7)),
    "adaptive average 3d": lambda: _of(lambda x: F.adaptive_avg_pool3d(x, 2), r(1, 3, 4, 5, 4)),
    "adaptive max": lambda: _of(
        lambda x: F.adaptive_max_pool2d(x, 1) + F.adaptive_max_pool2d(x, (3, 2)), r(1, 3, 6, 4)
    ),
    "adaptive max uneven": lambda: _of(lambda x: F.adaptive_max_pool2d(x, (3, 4)), r(1, 3, 7, 6)),
    "adaptive max 1d": lambda: _of(lambda x: F.adaptive_max_pool1d(x, 1), r(1, 3, 6)),
    "max pool": lambda: _of(lambda x: F.max_pool2d(x, 3, 2, 1), r(1, 3, 8, 7)),
    "max pool ceil": lambda: _of(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), r(1, 3, 8, 8)),
    "max pool dilated": lambda: _of(lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), r(1, 3, 8, 8)),
    "max pool 1d": lambda: _of(lambda x: F.max_pool1d(x, 3, 2, 1), r(1, 3, 8)),
    "max pool 3d": lambda: _of(lambda x: F.max_pool3d(x, 2), r(1, 3, 4, 4, 6)),
    "average pool": lambda: _of(lambda x: F.avg_pool2d(x, 3, 2, 1), r(1, 3, 8, 7)),
    "average pool inside": lambda: _of(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), r(1, 3, 8, 7)
    ),
    "average pool ceil": lambda: _of(
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), r(1, 3, 8, 8)
    ),
    "average pool 1d": lambda: _of(lambda x: F.avg_pool1d(x, 3, 2, 1), r(1, 3, 8)),
    "average pool 3d": lambda: _of(lambda x: F.avg_pool3d(x, 2), r(1, 3, 4, 4, 6)),
    "average pool divisor": lambda: _of(
        lambda x: F.avg_pool2d(x, 2, divisor_override=3), r(1, 3, 4, 4)
    ),
    "lp pool": lambda: _of(lambda x: F.lp_pool2d(x.abs(), 2.0, 2), r(1, 3, 4, 4)),
    "global mean": lambda: _net(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        r(1, 3, 6, 6),
    ),
}

SEQUENCES: dict[str, Callable[[], Case]] = {
    "lstm": lambda: _net(nn.LSTM(5, 6), r(4, 2, 5)),
    "lstm batch first": lambda: _net(nn.LSTM(5, 6, batch_first=True), r(2, 4, 5)),
    "lstm two layers both ways": lambda: _net(
        nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True), r(2, 3, 5)
    ),
    "lstm projected": lambda: _net(nn.LSTM(5, 6, proj_size=3), r(3, 2, 5)),
    "lstm with state": lambda: _of(
        lambda x, h, c: _LSTM(x, (h, c))[0], r(3, 2, 5), r(1, 2, 6), r(1, 2, 6)
    ),
    "gru": lambda: _net(nn.GRU(5, 6), r(4, 2, 5)),
    "gru two layers both ways": lambda: _net(
        nn.GRU(5, 6, num_layers=2, bidirectional=True, batch_first=True), r(2, 3, 5)
    ),
    "rnn": lambda: _net(nn.RNN(5, 6, nonlinearity="relu"), r(3, 2, 5)),
    "lstm cell": lambda: _net(Cells(nn.LSTMCell), r(3, 2, 5)),
    "gru cell": lambda: _net(Cells(nn.GRUCell), r(3, 2, 5)),
    "attention": lambda: _of(
        F.scaled_dot_product_attention, r(1, 2, 6, 4), r(1, 2, 5, 4), r(1, 2, 5, 4)
    ),
    "attention causal": lambda: _of(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        *(r(1, 2, 6, 4) for _ in range(3)),
    ),
    "attention bool mask": lambda: _of(
        F.scaled_dot_product_attention,
        *(r(1, 2, 6, 4) for _ in range(3)),
        torch.rand(1, 1, 6, 6) > 0.3,
    ),
    "attention float mask": lambda: _of(
        F.scaled_dot_product_attention,
        *(r(1, 2, 6, 4) for _ in range(3)),
        r(1, 1, 6, 6),
    ),
    "attention grouped": lambda: _of(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        r(1, 4, 6, 4),
        r(1, 2, 6, 4),
        r(1, 2, 6, 4),
    ),
    "attention three axes": lambda: _of(
        F.scaled_dot_product_attention, r(2, 6, 4), r(2, 5, 4), r(2, 5, 4)
    ),
    "attention by hand": lambda: _net(Mask(), *(r(1, 2, 6, 4) for _ in range(3))),
    "multihead": lambda: _net(SelfAttention(weights=False), r(2, 5, 8)),
    "multihead weights": lambda: _net(SelfAttention(weights=True), r(2, 5, 8)),
    "encoder layer": lambda: _net(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), r(2, 5, 8)
    ),
    "decoder layer": lambda: _net(
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), r(2, 5, 8), r(2, 4, 8)
    ),
    "rotary": lambda: _of(
        lambda x, c, s: x * c + torch.cat((-x[..., 2:], x[..., :2]), -1) * s,
        r(1, 2, 5, 4),
        r(1, 1, 5, 4),
        r(1, 1, 5, 4),
    ),
}
_LSTM = nn.LSTM(5, 6).eval().requires_grad_(requires_grad=False)

PRODUCTS: dict[str, Callable[[], Case]] = {
    "linear": lambda: _net(nn.Linear(5, 6, bias=False), r(2, 3, 5)),
    "linear of a vector": lambda: _net(nn.Linear(5, 6), r(5)),
    "bilinear layer": lambda: _net(nn.Bilinear(3, 4, 5), r(2, 3), r(2, 4)),
    "einsum": lambda: _of(
        lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y), r(1, 2, 3, 4), r(1, 2, 5, 4)
    ),
    "einsum moves": lambda: _of(
        lambda x, w: torch.einsum("bchw,dc->bdhw", x, w), r(1, 3, 4, 5), r(6, 3)
    ),
    "einsum sums": lambda: _of(lambda x, y: torch.einsum("nc,nkc->nk", x, y), r(2, 3), r(2, 4, 3)),
    "einsum three": lambda: _of(
        lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z), r(2, 3), r(3, 4), r(4, 5)
    ),
    "einsum ellipsis": lambda: _of(
        lambda x, y: torch.einsum("...i,...j->...ij", x, y), r(2, 3), r(2, 4)
    ),
    "einsum diagonal": lambda: _of(lambda x: torch.einsum("bii->b", x), r(2, 3, 3)),
    "outer": lambda: _of(torch.outer, r(3), r(4)),
    "bmm": lambda: _of(torch.bmm, r(2, 3, 4), r(2, 4, 5)),
    "baddbmm": lambda: _of(
        lambda a, x, y: torch.baddbmm(a, x, y, beta=0.5, alpha=2),
        r(2, 3, 5),
        r(2, 3, 4),
        r(2, 4, 5),
    ),
    "addmm": lambda: _of(
        lambda a, x, y: torch.addmm(a, x, y, beta=0.5, alpha=2), r(5), r(3, 4), r(4, 5)
    ),
    "conv1d of gpt-2": lambda: _of(
        lambda x, w, b: torch.addmm(b, x.view(-1, 4), w).view(2, 3, 5), r(2, 3, 4), r(4, 5), r(5)
    ),
    "matmul vectors": lambda: _of(
        lambda x, y: (x @ y[:, 0], x[0] @ y, x[0] @ y[:, 0], torch.dot(x[0], y[:, 1])),
        r(3, 4),
        r(4, 5),
    ),
    "matmul broadcast": lambda: _of(torch.matmul, r(2, 1, 3, 4), r(5, 4, 6)),
    "mv": lambda: _of(torch.mv, r(3, 4), r(4)),
    "cross": lambda: _of(lambda x, y: torch.cross(x, y, dim=1), r(2, 3), r(2, 3)),
    "tensordot": lambda: _of(lambda x, y: torch.tensordot(x, y, 2), r(2, 3, 4), r(3, 4, 5)),
    "kron": lambda: _of(torch.kron, r(2, 3), r(3, 2)),
    "integer matmul": lambda: _of(lambda x, y: x @ y, ids(5, 3, 4), ids(5, 4, 2)),
    "trace": lambda: _of(torch.trace, r(3, 3)),
}


class Bags(nn.Module):
    """Bags of embeddings that begin where an input says; the second one is empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(9, 4, **options)

    def forward(self, indices: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
        begins = torch.tensor([0, 2, 2, 5] if self.bags.include_last_offset else [0, 2, 2])
        return self.bags(indices, begins, *factors)


class Rotary(nn.Module):
    """Rotary position embeddings with complex numbers, as in Llama's first implementation."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(5.0), 1.0 / 10.0 ** (torch.arange(0, 6, 2) / 6))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[None, :, None]).flatten(3)


class SpectralConvolution(nn.Module):
    """The layer of Fourier neural operators (Li et al. 2021, figure 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3, 4, 4, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        made = torch.zeros(1, 4, spectrum.shape[-1], dtype=torch.cfloat)
        made[:, :, :4] = torch.einsum("bix,iox->box", spectrum[:, :, :4], self.weights)
        return torch.fft.irfft(made, n=x.shape[-1])


def _complex(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Arithmetic of complex numbers."""
    one, two = torch.complex(x, y), torch.complex(y, x * 2)
    both = torch.cat([one, two.conj(), x.to(torch.complex64)], 0)
    product = (one @ two.T) / (3 + 2j) - 1j * one[:, :3]
    parts = [both, product, one / two, torch.exp(one), one**3, torch.where(x > 0, one, two)]
    sizes = [one.abs(), two.angle(), torch.stack([one, two]).sum(0).real, one.reciprocal().imag]
    return [torch.view_as_real(part.resolve_conj()) for part in parts] + sizes


def _spectrogram(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()


COMPLEX: dict[str, Callable[[], Case]] = {
    "rotary": lambda: _net(Rotary(), r(2, 5, 2, 6)),
    "arithmetic": lambda: _of(_complex, r(3, 3), r(3, 3)),
    "fft2": lambda: _of(lambda x: torch.fft.fft2(x, dim=(1, 2)).real, r(2, 6, 8)),
    "ifft": lambda: _of(
        lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=0)), r(5, 3, 2)
    ),
    "rfft orthonormal": lambda: _of(
        lambda x: torch.view_as_real(torch.fft.rfft2(x, norm="ortho")), r(2, 6, 7)
    ),
    "irfft even": lambda: _of(
        lambda x: torch.fft.irfft(torch.view_as_complex(x), norm="forward"), r(3, 5, 2)
    ),
    "irfft odd": lambda: _of(lambda x: torch.fft.irfft(torch.view_as_complex(x), n=7), r(3, 4, 2)),
    "filter": lambda: _of(
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=(6, 7)), r(2, 6, 7)
    ),
    "spectrogram": lambda: _of(_spectrogram, r(1, 40)),
    "spectral convolution": lambda: _net(SpectralConvolution(), r(1, 3, 11)),
}

FAMILIES: dict[str, dict[str, Callable[[], Case]]] = {
    "convolutions": CONVOLUTIONS,
    "normalisations": NORMALISATIONS,
    "element-wise": ELEMENTWISE,
    "reductions": REDUCTIONS,
    "indexing": INDEXING,
    "moves": MOVES,
    "images": IMAGES,
    "sequences": SEQUENCES,
    "products": PRODUCTS,
    "complex": COMPLEX,
}

REFUSED: dict[str, Callable[[], Case]] = {
    "cummax": lambda: _of(lambda x: x.cummax(1).values, r(2, 6)),
    "cumprod": lambda: _of(
        lambda x: torch.view_as_real(torch.view_as_complex(x).cumprod(0)), r(3, 2)
    ),
    "repeat_interleave": lambda: _of(
        lambda x: torch.repeat_interleave(x, torch.tensor([1, 2, 1]), dim=0, output_size=4), r(3, 2)
    ),
    "max_pool2d_with_indices": lambda: _of(
        lambda x: F.max_pool2d(x, 2, return_indices=True), r(1, 3, 4, 4)
    ),
}
"""By the operator that a refusal has to name."""
