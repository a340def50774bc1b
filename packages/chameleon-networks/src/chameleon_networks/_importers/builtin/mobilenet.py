"""MobileNet-V2 (Sandler et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Unit(nn.Sequential):
    """A convolution with batch normalization and, if ``activated``, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, activated: bool = True, **options: int
    ) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **options)
        activation = [nn.ReLU6()] if activated else []
        super().__init__(conv, nn.BatchNorm2d(outputs), *activation)


class InvertedResidual(nn.Module):
    """The block of MobileNet-V2: 1x1 expansion, 3x3 depthwise convolution and 1x1 projection."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        parts: list[nn.Module] = [] if expansion == 1 else [Unit(inputs, hidden, 1)]
        parts += [
            Unit(hidden, hidden, 3, stride=stride, groups=hidden),
            Unit(hidden, outputs, 1, activated=False),
        ]
        self.residual = nn.Sequential(*parts)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block's convolutions to ``x``, and add ``x`` if both have the same shape."""
        y: Tensor = self.residual(x)
        return x + y if self.shortcut else y


class MobileNetV2(nn.Module):
    """MobileNet-V2: a convolution, inverted residuals, a 1x1 convolution and a dense layer."""

    def __init__(
        self, stem: int, stages: Sequence[tuple[int, int, int, int]], last: int, classes: int
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [Unit(3, stem, 3, stride=2)]
        channels = stem
        for expansion, width, blocks, first_stride in stages:
            for number in range(blocks):
                stride = first_stride if number == 0 else 1
                parts.append(InvertedResidual(channels, width, stride, expansion))
                channels = width
        parts.append(Unit(channels, last, 1))
        self.features = nn.Sequential(*parts)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(last, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the class scores of images of shape (n, 3, height, width)."""
        features: Tensor = self.pool(self.features(image))
        scores: Tensor = self.classifier(features.flatten(1))
        return scores


def mobilenet_v2() -> nn.Module:
    """MobileNet-V2 of width 1.0 (Sandler et al. 2018, table 2) for images of 224 x 224."""
    first = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
    stages = (*first, (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    return MobileNetV2(32, stages, last=1280, classes=1000)


def mobilenet_small() -> nn.Module:
    """A small MobileNet-V2 with three inverted residuals, for images of 32 x 32."""
    return MobileNetV2(16, ((1, 16, 1, 1), (6, 24, 2, 2)), last=64, classes=10)
