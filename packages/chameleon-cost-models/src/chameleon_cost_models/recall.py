"""AutoTVM's measure of a ranking: how much of the true top is among the predicted top."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def average_recall(predicted: NDArray[np.floating], truth: NDArray[np.floating], top: int) -> float:
    """Mean over k = 1 .. top of the share of the k truly best that are predicted among the k best.

    Args:
        predicted: shape (n,), higher is better.
        truth: shape (n,), higher is better; of equals the first counts as better.
        top: the longest list looked at, at least 1; at most n are.
    """
    count = len(truth)
    ranks = np.empty((2, count), np.intp)
    for row, values in enumerate((predicted, truth)):
        ranks[row, np.argsort(-values, kind="stable")] = np.arange(count)
    # A configuration is in both lists of length k from the larger of its ranks on.
    found = np.cumsum(np.bincount(ranks.max(axis=0), minlength=count))[:top]
    return float(np.mean(found / np.arange(1, len(found) + 1)))
