"""Tiny networks of torch: one operator or idiom each, made of functions or as a class."""

from functools import partial
from typing import Any

import torch
from torch import nn


class Of(nn.Module):
    """A function as a network.

    Args:
        function: of the inputs.
    """

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Whole(nn.Module):
    """A recurrent layer with its final states, which a tuple or a tensor holds."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        outputs, states = self.layer(x)
        return outputs, *(states if isinstance(states, tuple) else (states,))


class Cells(nn.Module):
    """A few steps of a recurrent cell, as decoders write them."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(5, 6)

    def forward(self, x):
        state = None
        for step in x.unbind(0):
            state = self.cell(step, state)
        return state


class Mask(nn.Module):
    """Attention with a buffer of booleans as its mask, as in GPT-2."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(6, 6, dtype=torch.bool)))

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / 2.0
        scores = torch.where(self.mask, scores, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, -1) @ v


class WithEmbedding(nn.Module):
    """Token and position embeddings, added."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 8, padding_idx=0)
        self.places = nn.Embedding(6, 8)

    def forward(self, ids):
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))


class SelfAttention(nn.Module):
    """``nn.MultiheadAttention`` of a sequence with itself."""

    def __init__(self, *, weights):
        super().__init__()
        self.weights = weights
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        result = self.attention(x, x, x, need_weights=self.weights)
        return result if self.weights else result[0]


class Bags(nn.Module):
    """Bags of embeddings that begin where an input says; the second one is empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(9, 4, **options)

    def forward(self, indices, *factors):
        begins = torch.tensor([0, 2, 2, 5] if self.bags.include_last_offset else [0, 2, 2])
        return self.bags(indices, begins, *factors)


class Rotary(nn.Module):
    """Rotary position embeddings with complex numbers, as in Llama's first implementation."""

    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(5.0), 1.0 / 10.0 ** (torch.arange(0, 6, 2) / 6))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[None, :, None]).flatten(3)


class SpectralConvolution(nn.Module):
    """The layer of Fourier neural operators (Li et al. 2021, figure 2)."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3, 4, 4, dtype=torch.cfloat))

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        mixed = torch.zeros(1, 4, spectrum.shape[-1], dtype=torch.cfloat)
        mixed[:, :, :4] = torch.einsum("bix,iox->box", spectrum[:, :, :4], self.weights)
        return torch.fft.irfft(mixed, n=x.shape[-1])


def r(*shape):
    """Random numbers of a shape."""
    return torch.randn(shape)


def holed(*shape):
    """Random numbers of a shape, some of which are NaN or infinite."""
    x, draw = r(*shape), torch.rand(shape)
    for number, most in ((torch.inf, 0.1), (-torch.inf, 0.08), (torch.nan, 0.03)):
        x[draw < most] = number
    return x


def ids(below, *shape):
    """Random whole numbers of a shape."""
    return torch.randint(0, below, shape)


def net(module, *inputs):
    """A module with its inputs."""
    return module, inputs


def of(function, *inputs, **options):
    """A function with options as a network, with its inputs."""
    return Of(partial(function, **options)), inputs


def warm(module):
    """The module with statistics as after training."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 1.5)
    return module
