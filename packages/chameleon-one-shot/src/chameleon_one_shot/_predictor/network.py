"""The network of a predictor: multi-head self-attention over the tokens of a configuration.

The One-Shot Tuner (Ryu et al. 2022, section 4.4) gives a transformer encoder a single token. This
network has one token for each knob, loop, buffer, the task and the device.
"""

from __future__ import annotations

import math

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from chameleon_one_shot._predictor.options import Architecture

_KINDS = 3


class TokenEmbedding(nn.Module):
    """Makes a token's vector from its named numbers."""

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
        """The vectors of tokens, shape (tasks, n, tokens, width).

        Args:
            values: the numbers of the tokens, shape (tasks, n, tokens, numbers).
            columns: the ids of the numbers' names, shape (tasks, tokens, numbers).
            names: the ids of the tokens' names, shape (tasks, tokens).
            kinds: ``FIXED``, ``KNOB`` or ``GROUP``, shape (tasks, tokens).
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


class _Attention(nn.Module):
    """The weights of an attention and of the feed-forward part after it."""

    def __init__(self, architecture: Architecture, *, factor: int, dropout: float = 0.0) -> None:
        super().__init__()
        width = architecture.width
        self.heads = architecture.heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.mix = _FeedForward(architecture, factor=factor, dropout=dropout)


class _Layer(_Attention):
    """A layer of attention and a feed-forward part, each after a normalisation (Xiong et al. 2020).

    The feed-forward part is narrow, since it would otherwise take half of the time.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture, factor=1)
        self.width = architecture.width // self.heads

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """The tokens after this layer, shape (n, tokens, width)."""
        return self._attend(tokens, self.qkv(tokens).transpose(1, 2).flatten(0, 1), padding)

    def qkv(self, tokens: Tensor) -> Tensor:
        """Query, key and value of tokens (..., width), shape (..., heads, 3 * width / heads)."""
        normed = self.norm(tokens)
        key, value = self.key_value(normed).chunk(2, dim=-1)
        parts = (self.query(normed) / math.sqrt(self.width), key, value)
        return torch.cat([part.unflatten(-1, (self.heads, -1)) for part in parts], dim=-1)

    def forward_from_table(self, tokens: Tensor, qkv: Tensor, rows: Tensor) -> Tensor:
        """The result of ``forward``, with queries, keys and values from a table.

        ``qkv`` has shape (m * heads, 3 * width / heads), and ``rows`` each token's row, shape (n,
        tokens).
        """
        heads = torch.arange(self.heads)[:, None]
        own = functional.embedding(rows[:, None] * self.heads + heads, qkv)
        return self._attend(tokens, own.flatten(0, 1), None)

    def _attend(self, tokens: Tensor, qkv: Tensor, padding: Tensor | None) -> Tensor:
        """The tokens after this layer, shape (n, tokens, width).

        ``qkv`` has shape (n * heads, tokens, 3 * width / heads), and ``padding`` (n, tokens).
        """
        query, key, value = qkv.chunk(3, dim=-1)
        products = torch.bmm(query, key.transpose(1, 2))
        if padding is not None:
            missing = padding.repeat_interleave(self.heads, dim=0)[:, None]
            products = products.masked_fill(missing, -torch.inf)
        # torch's own scaled_dot_product_attention is three times as slow for so few and narrow.
        attended = torch.bmm(torch.softmax(products, dim=-1), value)
        attended = attended.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        out = tokens + self.output(attended)
        mixed: Tensor = out + self.mix(out)
        return mixed


class _LastLayer(_Attention):
    """A layer as ``_Layer`` for the first token alone, from which the prediction is computed."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture, factor=4, dropout=architecture.dropout)

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """The first token after this layer, shape (n, 1, width)."""
        normed = self.norm(tokens)
        keys, values = self.key_value.weight.unflatten(0, (2, self.heads, -1))
        query = self.query(normed[:, 0]).unflatten(-1, (self.heads, -1))
        qkv = torch.einsum("nhd,hdw->nhw", query, keys)
        products = (qkv / math.sqrt(query.shape[-1])) @ normed.transpose(1, 2)
        if padding is not None:
            products = products.masked_fill(padding[:, None], -torch.inf)
        attended = torch.softmax(products, dim=-1) @ normed
        attended = torch.einsum("nhw,hdw->nhd", attended, values).flatten(1)
        attended = attended + self.key_value.bias.chunk(2)[1]
        out = tokens[:, :1] + self.output(attended)[:, None]
        mixed: Tensor = out + self.mix(out)
        return mixed


@attrs.frozen(kw_only=True, eq=False)
class TokenTable:
    """The m distinct tokens of many configurations, whose first layer is computed only once.

    Attributes:
        tokens: the tokens, shape (m, width).
        qkv: queries, keys and values of the first layer, shape (m * heads, 3 * width / heads). None
            if that layer is the last one.
    """

    tokens: Tensor
    qkv: Tensor | None

    def concat(self, others: TokenTable) -> TokenTable:
        """A table of the tokens of two tables."""
        tokens = torch.cat([self.tokens, others.tokens[1:]])
        if self.qkv is None or others.qkv is None:
            return TokenTable(tokens=tokens, qkv=None)
        heads = len(self.qkv) // len(self.tokens)
        return TokenTable(tokens=tokens, qkv=torch.cat([self.qkv, others.qkv[heads:]]))


class TokenNetwork(nn.Module):
    """Predicts mean and variance of a configuration's log-throughput from its tokens."""

    def __init__(self, columns: int, tokens: int, architecture: Architecture) -> None:
        super().__init__()
        width = architecture.width
        self.embedding = TokenEmbedding(columns, tokens, architecture)
        self.readout = nn.Parameter(torch.zeros(width))
        all_but_last = [_Layer(architecture) for _ in range(architecture.layers - 1)]
        self.layers = nn.ModuleList([*all_but_last, _LastLayer(architecture)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def representation(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """The vector of each configuration for its prediction, shape (n, width).

        ``tokens`` has shape (n, tokens, width), and ``padding`` (n, tokens).
        """
        first = self.readout.expand(len(tokens), 1, -1)
        tokens = torch.cat([first, tokens], dim=1)
        if padding is not None:
            padding = torch.cat([padding.new_zeros(len(padding), 1), padding], dim=1)
        for layer in self.layers:
            tokens = layer(tokens, padding)
        return self._read(tokens)

    def table(self, tokens: Tensor) -> TokenTable:
        """The table of tokens (m, width) for ``representation_of``."""
        tokens = torch.cat([self.readout[None], tokens])
        first = self.layers[0]
        qkv = first.qkv(tokens).flatten(0, 1) if isinstance(first, _Layer) else None
        return TokenTable(tokens=tokens, qkv=qkv)

    def representation_of(self, table: TokenTable, rows: Tensor) -> Tensor:
        """The result of ``representation``, with tokens from rows (n, tokens) of a table.

        The readout token comes first.
        """
        tokens = functional.embedding(rows, table.tokens)
        layers = iter(self.layers)
        if table.qkv is not None:
            tokens = next(layers).forward_from_table(tokens, table.qkv, rows)
        for layer in layers:
            tokens = layer(tokens, None)
        return self._read(tokens)

    def _read(self, tokens: Tensor) -> Tensor:
        read: Tensor = self.norm(tokens[:, 0])
        return read

    def moments(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """The predicted mean and the logarithm of the predicted variance, shape (n,) each."""
        mean, log_variance = self.head(read).unbind(-1)
        return mean, log_variance.clamp(-8.0, 4.0)
