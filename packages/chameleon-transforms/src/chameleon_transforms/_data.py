"""Batches of images and classes: built-in data, or a DataLoader that a user's function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import named_object
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

Shape = tuple[int, ...]
"""Numbers of channels, rows and columns of an image."""

_SAMPLES = 512
_IMAGE = 4


def batches(source: str, shape: Shape, classes: int, batch: int, seed: int = 0) -> Iterable[Any]:
    """Batches of data, each a pair of images and classes."""
    built_in = BUILT_IN.get(source)
    if built_in is not None:
        images, labels = built_in(shape, classes, seed)
        generator = torch.Generator().manual_seed(seed)
        loader: Iterable[Any] = DataLoader(
            TensorDataset(images, labels), batch_size=batch, shuffle=True, generator=generator
        )
        return loader
    if ":" not in source:
        raise ConfigError(
            f"there is no data {source!r}",
            hint=f"Write {' or '.join(BUILT_IN)}, or 'file.py:function' for a DataLoader.",
        )
    factory = named_object(source, "transform.data")
    try:
        batches: Iterable[Any] = factory()
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(
            f"{source} failed: {type(error).__name__}: {error}",
            hint="The function takes no argument and returns a DataLoader.",
        ) from error
    if not hasattr(batches, "__iter__"):
        raise ConfigError(
            f"{source} returned a {type(batches).__name__}, which has no batches",
            hint="Return a torch DataLoader of pairs of images and classes.",
        )
    return batches


def minibatch(
    loader: Iterable[Any], shape: Shape, classes: int, batch: int
) -> tuple[Tensor, Tensor]:
    """The first checked samples: images (n, channels, rows, columns), and classes (n,)."""
    pairs: list[tuple[Tensor, Tensor]] = []
    count = 0
    for pair in loader:
        pairs.append(checked(pair, shape, classes))
        count += len(pairs[-1][1])
        if count >= batch:
            break
    if count < 2:  # noqa: PLR2004
        raise ConfigError(
            f"the data has {count} sample{'s' if not count else ''}, and batch statistics "
            "need at least two",
            hint="Give at least two samples.",
        )
    images, labels = map(torch.cat, zip(*pairs, strict=True))
    return images[:batch], labels[:batch]


def checked(pair: Any, shape: Shape, classes: int) -> tuple[Tensor, Tensor]:
    """Check one batch of a user's data: images as floats, and classes as integers."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004
        raise ConfigError(
            f"the data yields a {type(pair).__name__} instead of a pair of images and classes",
            hint="Let the DataLoader yield (images, classes).",
        )
    images, labels = (torch.as_tensor(part) for part in pair)
    if images.dim() != _IMAGE or tuple(images.shape[1:]) != tuple(shape):
        raise ConfigError(
            f"the data yields images of shape {tuple(images.shape)}, and the network takes "
            f"(n, {', '.join(map(str, shape))})",
            hint="Resize them in the data set, or change the network's example inputs.",
        )
    is_integer = not labels.dtype.is_floating_point and labels.dtype != torch.bool
    if labels.dim() != 1 or len(labels) != len(images) or not is_integer:
        raise ConfigError(
            f"the data yields classes of shape {tuple(labels.shape)} and type {labels.dtype} for "
            f"{len(images)} images",
            hint="Yield one whole number for each image.",
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ConfigError(
            f"the data has classes from {int(labels.min())} to {int(labels.max())}, and the "
            f"network has {classes} outputs",
            hint="Count classes from 0 on, or give the network as many outputs.",
        )
    images = images.float()
    if not bool(torch.isfinite(images).all()):
        raise ConfigError(
            "the data has images with numbers that are not finite", hint="Clean the data set."
        )
    return images, labels.long()


def synthetic(shape: Shape, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random images: a smooth pattern for each class, plus noise."""
    generator = torch.Generator().manual_seed(seed)
    kinds = min(classes, 10)
    coarse = torch.randn((kinds, shape[0], 4, 4), generator=generator)
    patterns = torch.nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")
    labels = torch.randint(kinds, (min(_SAMPLES, 64 * kinds),), generator=generator)
    noise = torch.randn((len(labels), *shape), generator=generator)
    return patterns[labels] + noise, labels


def digits(shape: Shape, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """scikit-learn's 1797 images of handwritten digits, resized to the network's input shape."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - only this data set needs it

    if classes < 10:  # noqa: PLR2004
        raise ConfigError(
            f"there are ten digits, and the network has {classes} outputs",
            hint="Give the network ten outputs, or other data.",
        )
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8.0 - 1.0
    if tuple(shape[1:]) != tuple(images.shape[2:]):
        images = torch.nn.functional.interpolate(images, size=shape[1:], mode="bilinear")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order].expand(-1, shape[0], -1, -1), torch.tensor(digits.target)[order]


BUILT_IN: dict[str, Callable[[Shape, int, int], tuple[Tensor, Tensor]]] = {
    "synthetic": synthetic,
    "digits": digits,
}
"""Built-in data by name, which need no download."""
