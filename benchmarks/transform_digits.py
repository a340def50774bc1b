"""What the experiments with scikit-learn's digits have in common: data, networks, candidates."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
import transform_networks
from chameleon_core.api import Registry
from chameleon_transforms import _data as data
from chameleon_transforms._delivery import retrain
from chameleon_transforms._network.channels import traced
from chameleon_transforms._network.space import Candidate, NetworkSpace
from torch import Tensor, nn

Pair = tuple[Tensor, Tensor]
"""Images and classes."""

DIGIT = (1, 3, 8, 8)
NETWORKS = ("digits_residual", "digits_plain", "digits_bottleneck")


def digits(seed: int, trained_with: int) -> tuple[Pair, Pair]:
    """Images and classes to train with, and the others, which are held out.

    Args:
        seed: of the split.
        trained_with: how many of the 1797 are trained with.
    """
    images, labels = data.digits(DIGIT[1:], 10, seed)
    images = images.contiguous()
    return (
        (images[:trained_with], labels[:trained_with]),
        (images[trained_with:], labels[trained_with:]),
    )


def untrained(network: str, seed: int = 0) -> nn.Module:
    """One of the networks, with the weights that a seed gives."""
    torch.manual_seed(seed)
    made: nn.Module = getattr(transform_networks, network)()
    return made


def space_of(network: nn.Module) -> NetworkSpace:
    """All networks of the usual transforms."""
    names = ("group", "depthwise", "bottleneck", "split-outputs", "mixed-groups", "split-rows")
    transforms = [Registry.default().create("transforms", name) for name in names]
    return NetworkSpace(
        traced(network, torch.zeros(DIGIT)), transforms, sequence=2, widths=(1, 2, 4)
    )


def training(epochs: int, seed: int, rate: float) -> argparse.Namespace:
    """Options of the script that trains again."""
    return retrain.arguments(f"--epochs {epochs} --seed {seed} --rate {rate}".split())


def drawn(space: NetworkSpace, seed: int) -> Iterator[tuple[tuple[int, ...], Candidate]]:
    """Endless random networks, from those that change few layers to those that change all."""
    rng = np.random.default_rng(seed)
    seen: set[tuple[int, ...]] = {space.original}
    while True:
        rows = space.design.sample(64, rng)
        shares = rng.uniform(0.1, 1.0, (len(rows), 1))
        for row in np.where(rng.random(rows.shape) < shares, rows, 0).tolist():
            config = tuple(row)
            if config not in seen:
                seen.add(config)
                yield config, space.candidate(config)
