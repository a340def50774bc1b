"""Networks without branches: AlexNet in one column (Krizhevsky 2014), VGG-16 (Simonyan 2014)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn


class Plain(nn.Module):
    """A network of convolutions and pooling layers, followed by three dense layers."""

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


def _convolutions(layers: Iterable[tuple[int, int, int, int]]) -> list[nn.Module]:
    """Convolutions with ReLU, then pooling of stride 2 if the last number is not 0."""
    parts: list[nn.Module] = []
    channels = 3
    for width, kernel, stride, window in layers:
        padding = min(kernel // 2, 2)
        parts += [nn.Conv2d(channels, width, kernel, stride, padding), nn.ReLU()]
        parts += [nn.MaxPool2d(window, stride=2)] if window else []
        channels = width
    return parts


def _alexnet(widths: Sequence[int], hidden: int, grid: int, classes: int) -> nn.Module:
    """AlexNet with ``widths`` output channels of the convolutions and a ``grid`` x ``grid`` map."""
    layers = zip(widths, (11, 5, 3, 3, 3), (4, 1, 1, 1, 1), (3, 3, 0, 0, 3), strict=True)
    return Plain(_convolutions(layers), widths[-1] * grid * grid, hidden, classes)


def _vgg(blocks: Sequence[tuple[int, int]], hidden: int, grid: int, classes: int) -> nn.Module:
    """VGG with ``blocks`` (output channels, number of convolutions), each followed by pooling."""
    layers = [
        (width, 3, 1, 2 if last else 0)
        for width, count in blocks
        for last in [*[False] * (count - 1), True]
    ]
    return Plain(_convolutions(layers), blocks[-1][0] * grid * grid, hidden, classes)


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
