"""A network that reads handwritten digits, for `chameleon run examples/digits.yaml`.

What a pipeline's `precision` takes is here as well: inputs to calibrate with, and a measure of how
good the network is.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

WEIGHTS = Path(__file__).with_suffix(".pt")
"""Trained once: a network has to be the same in every process that makes it."""

BATCH = 32
HELD_OUT = 14 * BATCH
"""Images that neither training nor calibration sees: half of them types are chosen with."""


def images() -> tuple[np.ndarray, np.ndarray]:
    """Images of shape (n, 1, 8, 8) from 0 to 1, in an order of their own, and their digits."""
    scans = load_digits()
    order = np.random.default_rng(0).permutation(len(scans.target))
    pictures = scans.images[order, None].astype(np.float32) / 16.0
    return pictures, scans.target[order]


def network() -> torch.nn.Sequential:
    """The network before it is trained."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(64, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(1024, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )


def train(epochs: int = 8) -> None:
    """Train the network for a few seconds, and keep its weights."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more of them would wait for each other: the images are small
    model = network()
    pictures, digits = (torch.from_numpy(array[HELD_OUT:]) for array in images())
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(digits)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures[rows]), digits[rows]).backward()
            optimizer.step()
    part = WEIGHTS.with_suffix(f".{os.getpid()}")
    torch.save(model.state_dict(), part)
    part.replace(WEIGHTS)


def make() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The trained network and its example inputs."""
    if not WEIGHTS.is_file():
        train()
    model = network()
    model.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    return model.eval(), (torch.zeros(BATCH, 1, 8, 8),)


def batches() -> Iterator[np.ndarray]:
    """Inputs like those that the network will get: some that it was trained with."""
    pictures, _ = images()
    for first in range(HELD_OUT, HELD_OUT + 24 * BATCH, BATCH):
        yield pictures[first : first + BATCH]


def accuracy(network: Callable[[np.ndarray], np.ndarray]) -> float:
    """The share of images that a network reads right, of those that types are chosen with.

    Args:
        network: called with an array for each input, it returns the output's.
    """
    return share_right(network, 0, HELD_OUT // 2)


def share_right(network: Callable[[np.ndarray], np.ndarray], first: int, last: int) -> float:
    """The share of images that a network reads right, of those between two."""
    pictures, digits = images()
    outputs = [network(pictures[at : at + BATCH]) for at in range(first, last, BATCH)]
    return float((np.concatenate(outputs).argmax(axis=1) == digits[first:last]).mean())
