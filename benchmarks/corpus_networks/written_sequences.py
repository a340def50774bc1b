"""Networks for sequences, sound and tables, written as their papers describe them."""

from __future__ import annotations

import torch
from torch import nn

from corpus_networks.making import Made, made


def keyword_conv1d() -> Made:
    """A network for keywords of three conv1d on a second of 40 features."""
    network = nn.Sequential(
        nn.Conv1d(40, 64, 9, padding=4),
        nn.ReLU(),
        nn.Conv1d(64, 64, 9, padding=4),
        nn.ReLU(),
        nn.Conv1d(64, 64, 9, padding=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, 12),
    )
    return made(network, torch.randn(1, 40, 101))


class Recurrent(nn.Module):
    """A classifier of token sequences by their last state."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], width: int, **options: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, width)
        self.layers = kind(width, width, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(width * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.layers(self.embedding(tokens))
        found: torch.Tensor = self.head(states[:, -1])
        return found


def lstm_classifier() -> Made:
    """Two LSTM layers of 128 over 32 tokens."""
    return made(Recurrent(nn.LSTM, 128), torch.full((1, 32), 4999))


def gru_classifier() -> Made:
    """Two GRU layers of 128, both ways, over 32 tokens."""
    return made(Recurrent(nn.GRU, 128, bidirectional=True), torch.full((1, 32), 4999))


class CRNN(nn.Module):
    """CRNN (Shi et al. 2015): convolutions read a line of text, an LSTM its columns."""

    def __init__(self, classes: int = 37) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        shapes = ((1, 32, (2, 2)), (32, 64, (2, 2)), (64, 128, (2, 1)), (128, 128, (4, 1)))
        for before, after, pool in shapes:
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(pool),
            ]
        self.features = nn.Sequential(*layers)
        self.layers = nn.LSTM(128, 96, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        columns = self.features(image).squeeze(2).transpose(1, 2)
        found: torch.Tensor = self.head(self.layers(columns)[0])
        return found


def crnn() -> Made:
    """A CRNN on a line of 32 x 128."""
    return made(CRNN(), torch.randn(1, 1, 32, 128))


class TemporalBlock(nn.Module):
    """A block of a TCN: two causal, dilated conv1d and a residual."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        pad = 2 * dilation
        self.layers = nn.Sequential(
            nn.ConstantPad1d((pad, 0), 0.0),
            nn.Conv1d(inputs, outputs, 3, dilation=dilation),
            nn.ReLU(),
            nn.ConstantPad1d((pad, 0), 0.0),
            nn.Conv1d(outputs, outputs, 3, dilation=dilation),
            nn.ReLU(),
        )
        self.short = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.relu(self.layers(sequence) + self.short(sequence))
        return found


def tcn() -> Made:
    """A temporal convolutional network (Bai et al. 2018): dilations of 1 to 32."""
    blocks = [TemporalBlock(16 if not level else 64, 64, 1 << level) for level in range(6)]
    network = nn.Sequential(*blocks, nn.Conv1d(64, 4, 1))
    return made(network, torch.randn(1, 16, 256))


class Vocoder(nn.Module):
    """HiFi-GAN's generator (Kong et al. 2020), small: transposed and dilated conv1d."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.stem = nn.Conv1d(80, width, 7, padding=3)
        self.rise = nn.ModuleList()
        self.blocks = nn.ModuleList()
        for level, factor in enumerate((8, 8, 4)):
            before, after = width >> level, width >> (level + 1)
            self.rise.append(
                nn.ConvTranspose1d(before, after, 2 * factor, factor, padding=factor // 2)
            )
            self.blocks.append(
                nn.ModuleList(
                    nn.Conv1d(after, after, 3, padding=dilation, dilation=dilation)
                    for dilation in (1, 3, 5)
                )
            )
        self.head = nn.Conv1d(width >> 3, 1, 7, padding=3)

    def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
        sound = self.stem(spectrum)
        for rise, block in zip(self.rise, self.blocks, strict=True):
            sound = rise(nn.functional.leaky_relu(sound, 0.1))
            for layer in block:
                sound = sound + layer(nn.functional.leaky_relu(sound, 0.1))
        return torch.tanh(self.head(nn.functional.leaky_relu(sound, 0.1)))


def hifigan() -> Made:
    """A vocoder on 32 frames, which are 8192 samples."""
    return made(Vocoder(), torch.randn(1, 80, 32))


class Recommender(nn.Module):
    """DLRM (Naumov et al. 2019): embeddings, their pairwise products, and two stacks."""

    def __init__(self, tables: int = 8, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, width) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        rows, columns = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.top = nn.Sequential(
            nn.Linear(len(rows) + width, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid()
        )

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        dense = self.dense(numbers)
        looked_up = [table(categories[:, place]) for place, table in enumerate(self.tables)]
        vectors = torch.stack([dense, *looked_up], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.rows, self.columns]
        found: torch.Tensor = self.top(torch.cat([dense, pairs], dim=1))
        return found


def recommender() -> Made:
    """A recommender for 128 candidates at once."""
    return made(Recommender(), torch.randn(128, 13), torch.full((128, 8), 999))


def tabular_mlp() -> Made:
    """Three matrix products on 64 rows of a table: a network of few operators."""
    network = nn.Sequential(
        nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    return made(network, torch.randn(64, 100))


def transformer_encoder() -> Made:
    """``nn.TransformerEncoder``: 4 layers of 256 over 64 vectors."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    network = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return made(network, torch.randn(1, 64, 256))
