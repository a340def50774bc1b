"""VGG-16 (Simonyan and Zisserman 2014, configuration D)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class VGG(nn.Module):
    """Blocks of 3x3 convolutions, each block ended by pooling, and three dense layers.

    Args:
        blocks: for every block its output channels and its number of convolutions.
        hidden: width of the two hidden dense layers.
        grid: height and width of the last feature map.
        classes: outputs.
    """

    def __init__(
        self, blocks: Sequence[tuple[int, int]], hidden: int, grid: int, classes: int
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, convolutions in blocks:
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * grid * grid, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Class scores of images of shape (n, 3, height, width)."""
        features: Tensor = self.features(image)
        scores: Tensor = self.classifier(features.flatten(1))
        return scores


def vgg16() -> nn.Module:
    """VGG-16 for images of 224 x 224."""
    blocks = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
    return VGG(blocks, hidden=4096, grid=7, classes=1000)


def vgg_small() -> nn.Module:
    """A short VGG for images of 32 x 32."""
    return VGG(((16, 1), (32, 2)), hidden=32, grid=8, classes=10)
