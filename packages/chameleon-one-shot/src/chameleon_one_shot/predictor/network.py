"""The network: multi-head self-attention over the tokens of a configuration.

The One-Shot Tuner (Ryu et al. 2022, section 4.4) feeds a transformer encoder with one vector of all
features, over which attention has nothing to choose from. Here knobs, loops, buffers, the task
and the device are tokens of their own, so that attention weighs each against the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from chameleon_one_shot.predictor.options import Architecture

_KINDS = 3


class TokenEmbedding(nn.Module):
    """Named numbers to a token: the sum of a learnt vector for each name, times the number.

    Args:
        columns: names of numbers, the unknown one included.
        tokens: names of tokens, likewise.
        architecture: sizes.
    """

    def __init__(self, columns: int, tokens: int, architecture: Architecture) -> None:
        super().__init__()
        width = architecture.width
        self.columns = nn.Embedding(columns, width)
        self.names = nn.Embedding(tokens, width)
        self.kinds = nn.Embedding(_KINDS, width)
        self.mix = _FeedForward(architecture, factor=2)
        for table in (self.columns, self.names, self.kinds):
            nn.init.normal_(table.weight, std=0.2)

    def forward(self, values: Tensor, columns: Tensor, names: Tensor, kinds: Tensor) -> Tensor:
        """Tokens of shape (tasks, n, tokens, width).

        Args:
            values: shape (tasks, n, tokens, numbers).
            columns: ids of the numbers, shape (tasks, tokens, numbers).
            names: ids of the tokens, shape (tasks, tokens).
            kinds: shape (tasks, tokens).
        """
        weights = self.columns(columns)
        summed = torch.einsum("bntp,btpd->bntd", values, weights)
        token = summed + (self.names(names) + self.kinds(kinds))[:, None]
        return token + self.mix(token)


class _FeedForward(nn.Module):
    def __init__(self, architecture: Architecture, *, factor: int, dropout: float = 0.0) -> None:
        super().__init__()
        width = architecture.width
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, factor * width)
        self.outer = nn.Linear(factor * width, width)
        self.dropout = dropout

    def forward(self, token: Tensor) -> Tensor:
        inner = functional.relu(self.inner(self.norm(token)))
        if self.dropout:
            inner = functional.dropout(inner, self.dropout, self.training)
        mixed: Tensor = self.outer(inner)
        return mixed


class _Layer(nn.Module):
    """Attention and a feed-forward part, normalised before each (Xiong et al. 2020).

    The feed-forward part of all tokens takes as long as all else, so it is narrow there; that of
    the one token that is read out costs nothing.
    """

    def __init__(self, architecture: Architecture, *, last: bool) -> None:
        super().__init__()
        self.last = last
        width = architecture.width
        self.heads = architecture.heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.mix = _FeedForward(
            architecture, factor=4 if last else 1, dropout=architecture.dropout if last else 0.0
        )

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """Shape (n, tokens, width), or (n, 1, width) of the last layer: the first token's."""
        normed = self.norm(tokens)
        asking = normed[:, :1] if self.last else normed
        query = self._split(self.query(asking))
        key, value = (self._split(part) for part in self.key_value(normed).chunk(2, dim=-1))
        mask = None if padding is None else ~padding[:, None, None, :]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        seen = seen.transpose(1, 2).flatten(2)
        out = (tokens[:, :1] if self.last else tokens) + self.output(seen)
        mixed: Tensor = out + self.mix(out)
        return mixed

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class TokenNetwork(nn.Module):
    """Mean and variance of a configuration's standardised log-throughput.

    Args:
        columns: names of numbers, the unknown one included.
        tokens: names of tokens, likewise.
        architecture: sizes.
    """

    def __init__(self, columns: int, tokens: int, architecture: Architecture) -> None:
        super().__init__()
        width = architecture.width
        self.embedding = TokenEmbedding(columns, tokens, architecture)
        self.readout = nn.Parameter(torch.zeros(width))
        count = architecture.layers
        self.layers = nn.ModuleList(
            _Layer(architecture, last=place == count) for place in range(1, count + 1)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def representation(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """What is read out, shape (n, width).

        Args:
            tokens: shape (n, tokens, width).
            padding: which of them are none, shape (n, tokens); None where all are.
        """
        first = self.readout.expand(len(tokens), 1, -1)
        tokens = torch.cat([first, tokens], dim=1)
        if padding is not None:
            padding = torch.cat([padding.new_zeros(len(padding), 1), padding], dim=1)
        for layer in self.layers:
            tokens = layer(tokens, padding)
        read: Tensor = self.norm(tokens[:, 0])
        return read

    def moments(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of variances, shape (n,) each, of what was read out."""
        mean, log_variance = self.head(read).unbind(-1)
        return mean, log_variance.clamp(-8.0, 4.0)


__all__ = ["TokenEmbedding", "TokenNetwork"]
