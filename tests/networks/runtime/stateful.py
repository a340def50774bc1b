"""Torch networks whose calls change buffers."""

import torch
from torch import nn


class Recurrent(nn.Module):
    """An LSTM cell that keeps its state."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)
        self.head = nn.Linear(16, 4)
        self.register_buffer("h", torch.zeros(1, 16))
        self.register_buffer("c", torch.zeros(1, 16))

    def forward(self, x):
        h, c = self.cell(x, (self.h, self.c))
        self.h.copy_(h)
        self.c.copy_(c)
        return self.head(h)


class RunningMean(nn.Module):
    """The mean and variance of all rows so far, which begin with other numbers than zeros."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((8,), 0.5))
        self.register_buffer("variance", torch.ones(8))
        self.register_buffer("count", torch.tensor(1))

    def forward(self, x):
        self.count += 1
        self.mean += (x - self.mean).mean(0) / self.count
        self.variance.lerp_((x - self.mean).square().mean(0), 0.1)
        return (x - self.mean) / self.variance.sqrt()


class Exchanged(nn.Module):
    """Two buffers that change places, and an output that is the earlier value of one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.arange(4.0))
        self.register_buffer("b", -torch.arange(4.0))

    def forward(self, x):
        a, b = self.a.clone(), self.b.clone()
        self.a.copy_(b)
        self.b.copy_(a)
        self.b[1:3] += x
        return a, b[:2] * x


class Decoder(nn.Module):
    """A decoder with a static cache of keys and values, which takes one token a call."""

    def __init__(self, width=32, heads=4, length=16, layers=2, vocabulary=50):
        super().__init__()
        self.heads, self.length = heads, length
        self.embed, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, length) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, token, position):
        x = self.embed(token) + self.places(position)
        mask = torch.arange(self.length) <= position
        for layer in self.layers:
            x = layer(x, position, mask)
        return self.head(x)


class Layer(nn.Module):
    """A layer of the decoder, with its cache."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.projections = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, length, width // heads))

    def forward(self, x, position, mask):
        parts = self.projections(self.norms[0](x)).chunk(3, -1)
        query, key, value = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        self.keys[:, :, position] = key
        self.values[:, :, position] = value
        read = nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=mask[None, None, None]
        )
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norms[1](x))))


class Rows(nn.Module):
    """Rows that are written by indices of several kinds, and by slices, one after the other."""

    def __init__(self):
        super().__init__()
        for name, shape in {"a": (5, 6, 7), "b": (4, 3, 8, 2), "c": (3, 9), "d": (6, 4)}.items():
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, x, i, j):
        self.a[i, :, j] = x[:2, :6]  # the rows of both indices come first
        self.a[i.flip(0)] = x[0, 0]
        self.b[:, i, j] = x[:4, :4].reshape(4, 2, 2)
        self.b[1:3, :, ::3] = x[0, 1]
        self.c[:, 2:5] = x[:3, :3]
        self.c.index_copy_(1, j.abs(), x[:3, :2])
        before = self.d.clone()
        self.d[j] = x[:2, :4]
        return self.a.sum((0, 2)), self.b, self.c * 2, before


class Window(nn.Module):
    """The last rows, which move at each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 8))

    def forward(self, x):
        self.rows.copy_(torch.cat([self.rows[1:], x]))
        return self.rows.mean(0)


class Viewed(nn.Module):
    """Rows of a view of a buffer, whose numbers come from another buffer that changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 2))
        self.register_buffer("scratch", torch.zeros(2))

    def forward(self, x, place):
        self.scratch.copy_(x)
        self.cache.view(8)[:8].view(4, 2).index_copy_(0, place, self.scratch[None])
        return self.cache.sum(0)


def viewed():
    return Viewed().eval(), (torch.ones(2), torch.tensor([2]))


def rows():
    return Rows().eval(), (torch.randn(6, 6), torch.tensor([2, -1]), torch.tensor([-2, 3]))


def window():
    return Window().eval(), (torch.randn(1, 8),)


def recurrent():
    return Recurrent().eval(), (torch.randn(1, 8),)


def running_mean():
    return RunningMean().eval(), (torch.randn(3, 8),)


def exchanged():
    return Exchanged().eval(), (torch.randn(2),)


def decoder():
    return Decoder().eval(), (torch.tensor([[49]]), torch.tensor([15]))
