"""Indexing and moving elements of tensors of torch."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import Bags, WithEmbedding, ids, net, of, r


def _assigned(x):
    y = x.clone()
    y[:, 1:3] = 0.0
    y[2] = x[0] * 2
    return y


def _distinct(rows, below, count):
    return torch.stack([torch.randperm(below)[:count] for _ in range(rows)])


def _relative(x):
    """Buckets of distances, as in T5."""
    index = torch.arange(4)
    distance = (index[None, :] - index[:, None]).abs()
    large = 2 + (torch.log(distance.float() / 2 + 1e-6) / 2 * 3).to(torch.long)
    bucket = torch.where(distance < 2, distance, torch.min(large, torch.full_like(large, 4)))
    return x + F.embedding(bucket, torch.ones(5, 1)).squeeze(-1)


INDEXING = {
    "gather": lambda: of(lambda x, i: x.gather(1, i), r(3, 5), ids(5, 3, 4)),
    "gather other axis": lambda: of(lambda x, i: x.gather(0, i), r(3, 5), ids(3, 2, 5)),
    "gather narrower": lambda: of(lambda x, i: x.gather(1, i), r(3, 5, 4), ids(5, 2, 3, 2)),
    "index select": lambda: of(lambda x, i: x.index_select(1, i), r(3, 5), ids(5, 4)),
    "index": lambda: of(lambda x, i: x[i], r(5, 3), ids(5, 2, 4)),
    "select": lambda: of(lambda x: x[:, 2], r(4, 5, 2)),
    "select the last": lambda: of(lambda x: x[:, -1], r(4, 5, 2)),
    "select along the last": lambda: of(lambda x: x.select(-1, -2), r(4, 5, 3)),
    "index negative": lambda: of(lambda x, i: x[:, i - 3], r(4, 5, 2), ids(5, 3)),
    "index two": lambda: of(lambda x, i, j: x[i, j], r(5, 4, 3), ids(5, 2), ids(4, 2)),
    "index apart": lambda: of(lambda x, i, j: x[i, :, j], r(5, 4, 3), ids(5, 2), ids(3, 2)),
    "index broadcast": lambda: of(
        lambda x, i: x[torch.arange(3)[:, None], i], r(3, 5), ids(5, 3, 2)
    ),
    "index put": lambda: of(
        lambda x, y: torch.index_put(x, (torch.tensor([0, 2]),), y), r(4, 3), r(2, 3)
    ),
    "assigned slice": lambda: of(_assigned, r(4, 6)),
    "scatter": lambda: of(lambda x, i, y: x.scatter(1, i, y), r(3, 5), _distinct(3, 5, 2), r(3, 2)),
    "scatter value": lambda: of(lambda x, i: x.scatter(1, i, 9.0), r(3, 5), _distinct(3, 5, 2)),
    "scatter add": lambda: of(
        lambda x, i, y: x.scatter_add(1, i, y), r(3, 5), ids(5, 3, 4), r(3, 4)
    ),
    "scatter reduce": lambda: of(
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"), r(3, 5), ids(5, 3, 4), r(3, 4)
    ),
    "index add": lambda: of(lambda x, i, y: x.index_add(0, i, y), r(5, 3), ids(5, 4), r(4, 3)),
    "take along": lambda: of(lambda x: torch.take_along_dim(x, x.argsort(1), 1), r(3, 5)),
    "embedding": lambda: net(WithEmbedding(), ids(11, 2, 6)),
    "bags of one size": lambda: net(nn.EmbeddingBag(9, 4, mode="mean"), ids(9, 3, 5)),
    "largest of bags": lambda: net(nn.EmbeddingBag(9, 4, mode="max"), ids(9, 3, 5)),
    "bags with a padding": lambda: net(
        nn.EmbeddingBag(9, 4, mode="mean", padding_idx=0), ids(9, 3, 5)
    ),
    "sums of bags": lambda: net(Bags(mode="sum"), ids(9, 5), r(5)),
    "means of bags": lambda: net(Bags(mode="mean", include_last_offset=True), ids(9, 5)),
    "largest of any bags": lambda: net(Bags(mode="max"), ids(9, 5)),
    "one hot": lambda: of(lambda i: F.one_hot(i, 6), ids(6, 2, 3)),
    "one hot float": lambda: of(lambda i: F.one_hot(i, 6).float() @ torch.ones(6, 2), ids(6, 2, 3)),
    "triangles": lambda: of(lambda x: (x.tril(), x.triu(1), x.tril(-1)), r(2, 4, 5)),
    "made inside": lambda: of(
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
            + torch.arange(4, 0, -1)
        ),
        r(3, 4),
    ),
    "causal mask": lambda: of(
        lambda x: x + torch.full((4, 4), float("-inf")).triu(1).clamp(min=-1e9), r(2, 4, 4)
    ),
    "searchsorted": lambda: of(
        lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), r(3, 4)
    ),
    "relative position": lambda: of(_relative, r(2, 4, 4)),
    "meshgrid": lambda: of(lambda x: torch.stack(torch.meshgrid(x, x * 2, indexing="ij")), r(4)),
}

MOVES = {
    "views": lambda: of(
        lambda x: x.view(2, -1).reshape(-1, 4).unsqueeze(-2).transpose(-1, -3).flatten(-2),
        r(2, 3, 4),
    ),
    "permutes": lambda: of(
        lambda x: x.permute(0, -1, 1).movedim(0, -1).swapaxes(0, 1).contiguous().mT, r(2, 3, 4)
    ),
    "split": lambda: of(
        lambda x: (*x.split(2, 1), *x.chunk(3, -1), *x.split([1, 4], 1), *x.unbind(0)), r(2, 5, 6)
    ),
    "joins": lambda: of(
        lambda x, y: (torch.stack([x, y], -1), torch.cat([x, y > 0], -2), torch.hstack([x, y])),
        r(2, 3),
        r(2, 3),
    ),
    "slices": lambda: of(
        lambda x: (x[:, 1:-1], x[..., ::2], x[1], x[:, -2:], x[None, :, 0], x.narrow(1, 1, 2)),
        r(2, 5, 6),
    ),
    "expand": lambda: of(
        lambda x: x[:, None].expand(-1, 3, -1) + x.unsqueeze(1).expand(2, 3, 4), r(2, 4)
    ),
    "broadcast to": lambda: of(lambda x: torch.broadcast_to(x, (3, 2, 4)) * 1, r(2, 4)),
    "repeat": lambda: of(
        lambda x: (
            x.repeat(2, 3),
            x.tile(2),
            x.repeat_interleave(3, 1),
            torch.repeat_interleave(x, 2),
        ),
        r(2, 4),
    ),
    "roll": lambda: of(lambda x: x.roll((1, -1), (1, 2)) + x.roll(2, 1), r(2, 4, 5)),
    "roll flat": lambda: of(lambda x: x.roll(3), r(2, 4)),
    "flip": lambda: of(lambda x: x.flip((1, 2)) + x.flip(0), r(2, 4, 5)),
    "rot90": lambda: of(lambda x: torch.rot90(x, 1, (1, 2)), r(2, 4, 4)),
    "pad constant": lambda: of(
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0)), r(2, 3, 4)
    ),
    "pad crops": lambda: of(lambda x: F.pad(x, (-1, 1)), r(2, 3, 4)),
    "pad reflect": lambda: of(lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"), r(1, 2, 5, 4)),
    "pad reflect 1d": lambda: of(lambda x: F.pad(x, (2, 1), mode="reflect"), r(1, 2, 5)),
    "pad replicate": lambda: of(lambda x: F.pad(x, (1, 2, 1, 0), mode="replicate"), r(1, 2, 5, 4)),
    "pad circular": lambda: of(lambda x: F.pad(x, (1, 2, 1, 0), mode="circular"), r(1, 2, 5, 4)),
    "unfold": lambda: of(lambda x: F.unfold(x, 3, padding=1, stride=2), r(1, 3, 6, 6)),
    "fold": lambda: of(lambda x: F.fold(x, (4, 4), 2, stride=2), r(1, 12, 4)),
    "fold overlapping": lambda: of(
        lambda x: F.fold(x, (5, 5), 3, padding=1, stride=2), r(1, 18, 9)
    ),
    "tensor unfold": lambda: of(lambda x: x.unfold(1, 3, 2), r(2, 7)),
    "pixel shuffle": lambda: of(lambda x: F.pixel_shuffle(x, 2), r(1, 8, 3, 4)),
    "pixel unshuffle": lambda: of(lambda x: F.pixel_unshuffle(x, 2), r(1, 2, 6, 4)),
    "channel shuffle": lambda: of(lambda x: F.channel_shuffle(x, 2), r(1, 6, 3, 4)),
    "squeeze": lambda: of(lambda x: x.squeeze(), r(1, 3, 1, 4)),
    "diagonal": lambda: of(
        lambda x: (torch.diagonal(x, dim1=1, dim2=2), torch.diag_embed(x[:, 0])), r(2, 4, 4)
    ),
    "unflatten": lambda: of(lambda x: x.unflatten(1, (2, -1)), r(2, 6)),
    "as strided": lambda: of(lambda x: x.as_strided((2, 3), (3, 1)), r(2, 3)),
    "as strided permuted": lambda: of(lambda x: (x * 2).t().as_strided((3, 2), (1, 2)), r(2, 3)),
    "slice scatter": lambda: of(lambda x, y: torch.slice_scatter(x, y, 1, 1, 3), r(2, 5), r(2, 2)),
    "select scatter": lambda: of(lambda x, y: torch.select_scatter(x, y, 1, 2), r(2, 5), r(2)),
    "window partition": lambda: of(
        lambda x: x.view(1, 2, 2, 2, 2, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 3),
        r(1, 4, 4, 3),
    ),
}
