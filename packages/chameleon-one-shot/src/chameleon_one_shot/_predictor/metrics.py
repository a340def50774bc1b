"""Measures how well scores rank the candidates of a task."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@attrs.frozen(kw_only=True)
class Quality:
    """How well scores rank the candidates of one task, or the mean over several tasks.

    Attributes:
        tau: Kendall's rank correlation (tau-b) of scores and throughput.
        pairwise: the share of pairs with different throughput in the right order; equal scores
            count half.
        top1: the regret of the candidate with the best score: how much longer it takes than the
            best candidate, as a share.
        top10: the regret of the fastest of the ten candidates with the best scores.
    """

    tau: float
    pairwise: float
    top1: float
    top10: float

    @classmethod
    def of(cls, scores: Numbers, quality: Numbers) -> Quality:
        """The quality of scores, given logarithms of relative throughput, shape (n,) each."""
        tau, pairwise = _order(scores, quality)
        return cls(
            tau=tau,
            pairwise=pairwise,
            top1=regret(scores, quality, 1),
            top10=regret(scores, quality, 10),
        )

    @classmethod
    def mean(cls, several: Iterable[Quality]) -> Quality:
        """The mean quality over several tasks."""
        table = np.array([attrs.astuple(quality) for quality in several], np.float64)
        tau, pairwise, top1, top10 = table.mean(axis=0).tolist()
        return cls(tau=tau, pairwise=pairwise, top1=top1, top10=top10)


def tau(scores: Numbers, quality: Numbers) -> float:
    """Kendall's tau-b of scores and quality; 0 if either is constant."""
    return _order(scores, quality)[0]


def regret(scores: Numbers, quality: Numbers, count: int) -> float:
    """How much longer the best of the first ``count`` candidates takes than the best of all.

    Among equal scores, slower candidates come first, so that ties do not help by chance.
    """
    first = np.lexsort((quality, -scores))[:count]
    return float(np.expm1(quality.max() - quality[first].max()))


def _order(scores: Numbers, quality: Numbers) -> tuple[float, float]:
    """Kendall's tau-b, and the share of pairs in the right order."""
    balance = ranked_pairs = pairs = 0
    for row in range(len(scores) - 1):
        predicted = np.sign(scores[row + 1 :] - scores[row])
        actual = np.sign(quality[row + 1 :] - quality[row])
        balance += int(predicted @ actual)
        ranked_pairs += int(np.count_nonzero(predicted))
        pairs += int(np.count_nonzero(actual))
    spread = float(np.sqrt(pairs * float(ranked_pairs)))
    # A pair with equal scores counts as half right.
    pairwise = (pairs + balance) / (2 * pairs) if pairs else 0.5
    return balance / spread if spread else 0.0, pairwise
