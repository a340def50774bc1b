"""The network: multi-head self-attention over the tokens of a configuration.

The One-Shot Tuner (Ryu et al. 2022, section 4.4) feeds a transformer encoder with one vector of
all features, which leaves attention no choice. Here knobs, loops, buffers, the task and
the device are tokens of their own. Attention weighs each against the others.
"""

from __future__ import annotations

import math

import attrs
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


class _Attention(nn.Module):
    """The weights of attention, and a feed-forward part behind it."""

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
    """Attention and a feed-forward part, normalised before each (Xiong et al. 2020).

    The feed-forward part of all tokens takes as long as all else, so it is narrow here.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture, factor=1)
        self.width = architecture.width // self.heads

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """Tokens of the same shape, (n, tokens, width)."""
        return self._attend(tokens, self.asked(tokens).transpose(1, 2).flatten(0, 1), padding)

    def asked(self, tokens: Tensor) -> Tensor:
        """The table of tokens that attention needs, whichever they are met with.

        Args:
            tokens: shape (..., width).

        Returns:
            Each head has query, key and value side by side, shape (..., heads, 3 * width / heads).
        """
        normed = self.norm(tokens)
        key, value = self.key_value(normed).chunk(2, dim=-1)
        parts = (self.query(normed) / math.sqrt(self.width), key, value)
        return torch.cat([part.unflatten(-1, (self.heads, -1)) for part in parts], dim=-1)

    def looked_up(self, tokens: Tensor, asked: Tensor, rows: Tensor) -> Tensor:
        """As ``forward``, of tokens that were met before.

        Args:
            tokens: as there.
            asked: of all that were met, shape (m * heads, 3 * width / heads).
            rows: which of them the tokens are, shape (n, tokens).
        """
        heads = torch.arange(self.heads)[:, None]
        own = functional.embedding(rows[:, None] * self.heads + heads, asked)
        return self._attend(tokens, own.flatten(0, 1), None)

    def _attend(self, tokens: Tensor, asked: Tensor, padding: Tensor | None) -> Tensor:
        """Shape (n, tokens, width) again; ``asked`` is of shape (n * heads, tokens, ...)."""
        query, key, value = asked.chunk(3, dim=-1)
        products = torch.bmm(query, key.transpose(1, 2))
        if padding is not None:
            missing = padding.repeat_interleave(self.heads, dim=0)[:, None]
            products = products.masked_fill(missing, -torch.inf)
        # torch's own scaled_dot_product_attention is three times as slow for so few and narrow.
        seen = torch.bmm(torch.softmax(products, dim=-1), value)
        seen = seen.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        out = tokens + self.output(seen)
        mixed: Tensor = out + self.mix(out)
        return mixed


class _LastLayer(_Attention):
    """As ``_Layer`` for the one token that is read out, whose feed-forward part costs nothing.

    One query asks all tokens, so that it goes to the tokens, not each token to a key and a value:
    its product with a key is that of what the key's weights make of the query with the token, to
    which the key's bias adds the same for all; and a weighted sum of values is the value of a
    weighted sum.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture, factor=4, dropout=architecture.dropout)

    def forward(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """The first token, shape (n, 1, width)."""
        normed = self.norm(tokens)
        keys, values = self.key_value.weight.unflatten(0, (2, self.heads, -1))
        query = self.query(normed[:, 0]).unflatten(-1, (self.heads, -1))
        asked = torch.einsum("nhd,hdw->nhw", query, keys)
        products = (asked / math.sqrt(query.shape[-1])) @ normed.transpose(1, 2)
        if padding is not None:
            products = products.masked_fill(padding[:, None], -torch.inf)
        seen = torch.softmax(products, dim=-1) @ normed
        seen = torch.einsum("nhw,hdw->nhd", seen, values).flatten(1)
        seen = seen + self.key_value.bias.chunk(2)[1]
        out = tokens[:, :1] + self.output(seen)[:, None]
        mixed: Tensor = out + self.mix(out)
        return mixed


@attrs.frozen(kw_only=True, eq=False)
class TokenTable:
    """Tokens that configurations are made of, each computed once.

    Attributes:
        tokens: shape (m, width).
        asked: what the first layer's heads need of each, shape (m * heads, numbers); None if
            that layer is the last.
    """

    tokens: Tensor
    asked: Tensor | None

    def joined(self, others: TokenTable) -> TokenTable:
        """These and others, without the token that is read out, which both have."""
        tokens = torch.cat([self.tokens, others.tokens[1:]])
        if self.asked is None or others.asked is None:
            return TokenTable(tokens=tokens, asked=None)
        heads = len(self.asked) // len(self.tokens)
        return TokenTable(tokens=tokens, asked=torch.cat([self.asked, others.asked[heads:]]))


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
        all_but_last = [_Layer(architecture) for _ in range(architecture.layers - 1)]
        self.layers = nn.ModuleList([*all_but_last, _LastLayer(architecture)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def representation(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """The readout, shape (n, width).

        Args:
            tokens: shape (n, tokens, width).
            padding: which of them are none, shape (n, tokens); None if all are.
        """
        first = self.readout.expand(len(tokens), 1, -1)
        tokens = torch.cat([first, tokens], dim=1)
        if padding is not None:
            padding = torch.cat([padding.new_zeros(len(padding), 1), padding], dim=1)
        for layer in self.layers:
            tokens = layer(tokens, padding)
        return self._read(tokens)

    def table(self, tokens: Tensor) -> TokenTable:
        """The table of tokens, shape (m, width), for ``representation_of``.

        Its first row is that of the token that is read out.
        """
        tokens = torch.cat([self.readout[None], tokens])
        first = self.layers[0]
        asked = first.asked(tokens).flatten(0, 1) if isinstance(first, _Layer) else None
        return TokenTable(tokens=tokens, asked=asked)

    def representation_of(self, table: TokenTable, rows: Tensor) -> Tensor:
        """As ``representation``, of tokens that were met before.

        Args:
            table: of all of them.
            rows: the tokens of each, by row of the table, the first row first; shape (n, tokens).
        """
        tokens = functional.embedding(rows, table.tokens)
        layers = iter(self.layers)
        if table.asked is not None:
            tokens = next(layers).looked_up(tokens, table.asked, rows)
        for layer in layers:
            tokens = layer(tokens, None)
        return self._read(tokens)

    def _read(self, tokens: Tensor) -> Tensor:
        read: Tensor = self.norm(tokens[:, 0])
        return read

    def moments(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of variances, shape (n,) each, of what was read out."""
        mean, log_variance = self.head(read).unbind(-1)
        return mean, log_variance.clamp(-8.0, 4.0)
