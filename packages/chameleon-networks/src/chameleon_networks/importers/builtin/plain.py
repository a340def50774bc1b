"""Networks without branches: AlexNet in one column (Krizhevsky 2014), VGG-16 (Simonyan 2014)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Plain(nn.Module):
    """A network of convolutions and pooling layers, followed by three dense layers.

    Args:
        features: The layers before the dense ones.
        outputs: Number of values that ``features`` computes for one image.
        hidden: Number of features of the two hidden dense layers.
        classes: Number of outputs.
    """

    def __init__(
        self, features: Sequence[nn.Module], outputs: int, hidden: int, classes: int
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Linear(outputs, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Compute the class scores of images of shape (n, 3, height, width)."""
        features: Tensor = self.features(image)
        scores: Tensor = self.classifier(features.flatten(1))
        return scores


def _alexnet(widths: Sequence[int], hidden: int, grid: int, classes: int) -> nn.Module:
    """AlexNet with ``widths`` output channels of the convolutions and a ``grid`` x ``grid`` map."""
    first, second, third, fourth, fifth = widths
    features = [
        nn.Conv2d(3, first, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(first, second, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(second, third, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(third, fourth, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(fourth, fifth, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
    ]
    return Plain(features, fifth * grid * grid, hidden, classes)


def _vgg(blocks: Sequence[tuple[int, int]], hidden: int, grid: int, classes: int) -> nn.Module:
    """VGG with ``blocks`` (output channels, number of convolutions), each followed by pooling."""
    features: list[nn.Module] = []
    channels = 3
    for width, convolutions in blocks:
        for _ in range(convolutions):
            features += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        features.append(nn.MaxPool2d(2))
    return Plain(features, channels * grid * grid, hidden, classes)


def alexnet() -> nn.Module:
    """AlexNet for images of 224 x 224."""
    return _alexnet((64, 192, 384, 256, 256), hidden=4096, grid=6, classes=1000)


def alexnet_small() -> nn.Module:
    """A narrow AlexNet for images of 64 x 64."""
    return _alexnet((16, 32, 32, 32, 16), hidden=32, grid=1, classes=10)


def vgg16() -> nn.Module:
    """VGG-16, configuration D, for images of 224 x 224."""
    blocks = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
    return _vgg(blocks, hidden=4096, grid=7, classes=1000)


def vgg_small() -> nn.Module:
    """A short VGG for images of 32 x 32."""
    return _vgg(((16, 1), (32, 2)), hidden=32, grid=8, classes=10)
