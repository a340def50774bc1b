"""Residual networks (He et al. 2015), version 1.5.

In this version, the 3x3 convolution of a bottleneck has the stride.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Unit(nn.Module):
    """A convolution with batch normalization."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        self.normalisation = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolution and the normalization to x."""
        y: Tensor = self.normalisation(self.convolution(x))
        return y


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            parts = [Unit(inputs, width, 3, stride), nn.ReLU(), Unit(width, width, 3)]
        else:
            parts = [
                Unit(inputs, width, 1),
                nn.ReLU(),
                Unit(width, width, 3, stride),
                nn.ReLU(),
                Unit(width, outputs, 1),
            ]
        self.residual = nn.Sequential(*parts)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else Unit(inputs, outputs, 1, stride)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: its convolutions, the shortcut, their sum, and ReLU."""
        y: Tensor = self.activation(self.residual(x) + self.shortcut(x))
        return y


class ResNet(nn.Module):
    """A residual network: a first convolution, stages of residual blocks, and a dense layer."""

    def __init__(
        self, blocks: Sequence[int], *, width: int, expansion: int, classes: int, large: bool
    ) -> None:
        super().__init__()
        stem: list[nn.Module] = [Unit(3, width, 7, 2) if large else Unit(3, width, 3), nn.ReLU()]
        if large:
            stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        self.stem = nn.Sequential(*stem)
        channels = width
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                stages.append(Block(channels, width << stage, stride, expansion))
                channels = (width << stage) * expansion
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the class scores of images of shape (n, 3, height, width)."""
        features: Tensor = self.pool(self.stages(self.stem(image)))
        scores: Tensor = self.classifier(features.flatten(1))
        return scores


def resnet18() -> nn.Module:
    """ResNet-18 for images of 224 x 224."""
    return ResNet((2, 2, 2, 2), width=64, expansion=1, classes=1000, large=True)


def resnet50() -> nn.Module:
    """ResNet-50 for images of 224 x 224."""
    return ResNet((3, 4, 6, 3), width=64, expansion=4, classes=1000, large=True)


def resnet_small() -> nn.Module:
    """A small residual network of two stages for images of 32 x 32, for tests."""
    return ResNet((1, 1), width=16, expansion=1, classes=10, large=False)


def resnet_bottleneck_small() -> nn.Module:
    """A small residual network of two bottleneck blocks for images of 32 x 32, for tests."""
    return ResNet((1, 1), width=16, expansion=4, classes=10, large=False)
