"""The encoder of BERT (Devlin et al. 2018)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def _split(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        return x.reshape(n, length, self.heads, width // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Apply self-attention to states of shape (n, length, width), without the residual."""
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        mixed = torch.softmax(scores, dim=-1) @ value
        joined: Tensor = self.output(mixed.permute(0, 2, 1, 3).reshape(x.shape))
        return joined


class Layer(nn.Module):
    """An encoder layer: attention and feed-forward, each with residual and layer normalization."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)
        )
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the next hidden states, of shape (n, length, width)."""
        x = self.attention_norm(x + self.attention(x))
        y: Tensor = self.output_norm(x + self.feed_forward(x))
        return y


class Bert(nn.Module):
    """BERT's embeddings and encoder layers."""

    def __init__(
        self, *, vocabulary: int, positions: int, width: int, heads: int, inner: int, layers: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.Sequential(*[Layer(width, heads, inner) for _ in range(layers)])

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the last hidden states, shape (n, length, width), of token ids (n, length)."""
        places = torch.arange(ids.shape[1], device=ids.device)
        states: Tensor = self.layers(self.norm(self.tokens(ids) + self.positions(places)))
        return states


def bert_base() -> nn.Module:
    """The encoder of BERT-base."""
    return Bert(vocabulary=30522, positions=512, width=768, heads=12, inner=3072, layers=12)


def bert_small() -> nn.Module:
    """A small BERT encoder: two layers of width 32."""
    return Bert(vocabulary=128, positions=32, width=32, heads=2, inner=64, layers=2)
