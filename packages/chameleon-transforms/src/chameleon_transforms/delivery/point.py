"""The folder of a chosen network: code, weights, data, a script that trains it again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import structlog
import torch
from torch import Tensor

from chameleon_transforms.delivery.code import write_network
from chameleon_transforms.delivery.weights import Carrier
from chameleon_transforms.network.changed import changed_network
from chameleon_transforms.network.space import Candidate, NetworkSpace
from chameleon_transforms.search.front import Point

log = structlog.get_logger()

_RETRAIN = Path(__file__).with_name("retrain.py")
_HELD_OUT = 5
"""One sample in so many is held out."""
_MOST_BYTES = 1 << 30
"""Data beyond this are not copied into the folder."""


def write_point(
    space: NetworkSpace,
    point: Point,
    images: Tensor,
    data: Iterable[tuple[Tensor, Tensor]],
    folder: Path,
) -> list[str]:
    """Write what belongs to a network.

    Args:
        space: of which it is; its network has the weights.
        point: which.
        images: an example of the network's input.
        data: batches of images and classes, written as files for the script.
        folder: made where it is missing.

    Returns:
        The layers whose weights could not be carried over.

    Raises:
        ConfigError: the network's code cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    candidate = space.candidate(point.config)
    fresh = write_candidate(space, candidate, images, folder)
    write_network(space.network.module, images, folder, "original")
    shutil.copyfile(_RETRAIN, folder / "retrain.py")
    described: dict[str, Any] = {**point.to_json(), "initial_weights": fresh}
    (folder / "point.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    write_data(data, folder / "data")
    return fresh


def write_candidate(
    space: NetworkSpace, candidate: Candidate, images: Tensor, folder: Path
) -> list[str]:
    """Write the code and weights of a candidate as ``network``; returns as ``write_point`` does."""
    modules, fresh = Carrier(space, candidate).modules()
    if fresh:
        log.warning("layers_keep_initial_weights", layers=fresh)
    changed = changed_network(space.network.module, modules)
    write_network(changed, images, folder, "network")
    return fresh


def write_data(data: Iterable[tuple[Tensor, Tensor]], folder: Path) -> None:
    """Write batches as ``train.pt`` and, one sample in five, ``test.pt``."""
    images: list[Tensor] = []
    classes: list[Tensor] = []
    size = 0
    for found, labels in data:
        images.append(found)
        classes.append(labels)
        size += found.numel() * found.element_size()
        if size > _MOST_BYTES:
            log.warning("data_is_cut", samples=sum(map(len, classes)), bytes=size)
            break
    folder.mkdir(exist_ok=True)
    pictures, labels = torch.cat(images), torch.cat(classes)
    held_out = torch.arange(len(labels)) % _HELD_OUT == _HELD_OUT - 1
    for name, chosen in (("train", ~held_out), ("test", held_out)):
        torch.save((pictures[chosen], labels[chosen]), folder / f"{name}.pt")
