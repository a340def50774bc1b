"""AlexNet in its one-column form (Krizhevsky 2014, "One weird trick")."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Five convolutions and three dense layers.

    Args:
        widths: output channels of the five convolutions.
        hidden: width of the two hidden dense layers.
        grid: height and width of the last feature map.
        classes: outputs.
    """

    def __init__(self, widths: Sequence[int], hidden: int, grid: int, classes: int) -> None:
        super().__init__()
        one, two, three, four, five = widths
        self.features = nn.Sequential(
            nn.Conv2d(3, one, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(one, two, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(two, three, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(three, four, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(four, five, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(five * grid * grid, hidden),
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


def alexnet() -> nn.Module:
    """AlexNet for images of 224 x 224."""
    return AlexNet((64, 192, 384, 256, 256), hidden=4096, grid=6, classes=1000)


def alexnet_small() -> nn.Module:
    """A narrow AlexNet for images of 64 x 64."""
    return AlexNet((16, 32, 32, 32, 16), hidden=32, grid=1, classes=10)
