"""Networks that `benchmarks/transforms.py` transforms, for CIFAR's images and for large ones."""

from __future__ import annotations

import torch
from chameleon_networks._importers.builtin.resnet import ResNet, Unit
from chameleon_networks._importers.torch.inference import initialise
from torch import Tensor, nn

CIFAR = (1, 3, 32, 32)


Made = tuple[nn.Module, tuple[Tensor]]


def resnet18_cifar() -> Made:
    """ResNet-18 for images of 32x32."""
    made = ResNet((2, 2, 2, 2), width=64, expansion=1, classes=10, large=False)
    return initialise(made), (torch.zeros(CIFAR),)


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
