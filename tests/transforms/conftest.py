"""Small networks and the transforms of this package."""

import pytest
import torch
from chameleon_core._plugins.factory import load_factory
from chameleon_transforms import hooks
from chameleon_transforms._network.channels import traced
from chameleon_transforms._network.space import NetworkSpace
from torch import nn


def made(record):
    return load_factory(record.factory)(record.options())


@pytest.fixture(scope="session")
def transforms():
    """All transforms by name, with their defaults."""
    return {record.name: made(record) for record in hooks.TRANSFORMS}


@pytest.fixture(scope="session")
def scores():
    return {record.name: made(record) for record in hooks.SCORES}


class Block(nn.Module):
    """Two convolutions and a skip connection."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.second(self.act(self.norm(self.first(x))))
        y += x
        return self.act(y)


class Small(nn.Module):
    """A stem, a block, a strided convolution, a classifier of ten; images of 1x8x8."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.block = Block(width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(2 * width, 10)

    def forward(self, x):
        x = torch.relu(self.down(self.block(torch.relu(self.stem(x)))))
        return self.classifier(torch.flatten(self.pool(x), 1))


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture
def images():
    return torch.zeros(1, 1, 8, 8)


@pytest.fixture
def space(small, images, transforms):
    chosen = [transforms[name] for name in ("group", "depthwise", "bottleneck", "split-rows")]
    return NetworkSpace(traced(small, images), chosen, sequence=2, widths=(1, 2))
