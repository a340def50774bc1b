"""A map of a design space: configurations in the plane, alike ones near each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def projected(configs: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
    """The first two principal components of knob indices, each knob scaled to run from 0 to 1.

    Scaled by its range and not by its deviation, a value that was hardly ever measured does not
    take the map for itself.

    Args:
        configs: knob indices, shape (n, knobs).

    Returns:
        Coordinates of shape (n, 2), and the share of the variance that they keep, from 0 to 1.
    """
    values = configs.astype(np.float64)
    places = np.zeros((len(values), 2))
    if not values.size:
        return places, 0.0
    ranges = np.ptp(values, axis=0)
    varying = ranges > 0.0
    if not varying.any():
        return places, 0.0
    scaled = (values[:, varying] - values[:, varying].mean(axis=0)) / ranges[varying]
    # Rising eigenvalues of a small matrix, shape (knobs, knobs): rows need not be decomposed.
    strengths, directions = np.linalg.eigh(scaled.T @ scaled)
    axes = directions[:, ::-1][:, :2]
    # An eigenvector may point either way: its largest part is positive, so that maps agree.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    places[:, : axes.shape[1]] = scaled @ axes
    return places, float(strengths[::-1][:2].sum() / strengths.sum())


__all__ = ["projected"]
