"""Networks that `benchmarks/transforms.py` transforms, for CIFAR's images and for large ones."""

from __future__ import annotations

import torch
from chameleon_networks.importers.builtin.resnet import ResNet, Unit
from chameleon_networks.importers.torch.inference import initialise
from torch import Tensor, nn

CIFAR = (1, 3, 32, 32)


class Aggregated(nn.Module):
    """A block of ResNeXt (Xie et al. 2017): 1x1, a grouped 3x3, 1x1, and a shortcut."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.reduce = Unit(inputs, width, 1)
        self.grouped = nn.Conv2d(
            width, width, 3, stride=stride, padding=1, groups=groups, bias=False
        )
        self.normalisation = nn.BatchNorm2d(width)
        self.expand = Unit(width, outputs, 1)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else Unit(inputs, outputs, 1, stride)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The activated sum of both branches."""
        y = self.activation(self.reduce(x))
        y = self.activation(self.normalisation(self.grouped(y)))
        z: Tensor = self.activation(self.expand(y) + self.shortcut(x))
        return z


class ResNeXt(nn.Module):
    """ResNeXt for images of 32x32: three stages of three blocks each, 29 layers."""

    def __init__(self, groups: int = 2, base: int = 64, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [Unit(3, 64, 3), nn.ReLU()]
        channels = 64
        for stage in range(3):
            for place in range(3):
                stride = 2 if stage and not place else 1
                layers.append(
                    Aggregated(channels, groups * base << stage, 256 << stage, stride, groups)
                )
                channels = 256 << stage
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.classifier(self.pool(self.features(image)).flatten(1))
        return scores


Made = tuple[nn.Module, tuple[Tensor]]


def resnet18_cifar() -> Made:
    """ResNet-18 for images of 32x32."""
    made = ResNet((2, 2, 2, 2), width=64, expansion=1, classes=10, large=False)
    return initialise(made), (torch.zeros(CIFAR),)


def resnet34_cifar() -> Made:
    """ResNet-34 for images of 32x32."""
    made = ResNet((3, 4, 6, 3), width=64, expansion=1, classes=10, large=False)
    return initialise(made), (torch.zeros(CIFAR),)


def resnext29_cifar() -> Made:
    """ResNeXt-29 (2x64d) for images of 32x32."""
    return initialise(ResNeXt()), (torch.zeros(CIFAR),)


def resnet18_large() -> Made:
    """ResNet-18 for images of 224x224."""
    made = ResNet((2, 2, 2, 2), width=64, expansion=1, classes=1000, large=True)
    return initialise(made), (torch.zeros((1, 3, 224, 224)),)


# -- networks that learn scikit-learn's digits in seconds, untrained ---------------------------


def digits_residual() -> nn.Module:
    """Two residual blocks of 3x3."""
    return ResNet((1, 1), width=32, expansion=1, classes=10, large=False)


def digits_bottleneck() -> nn.Module:
    """Two residual blocks of 1x1, 3x3 and 1x1: most of the work is in products of channels."""
    return ResNet((1, 1), width=16, expansion=4, classes=10, large=False)


def digits_plain() -> nn.Module:
    """Four convolutions of 3x3, one after the other."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1)):
        layers += [Unit(inputs, outputs, 3, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
