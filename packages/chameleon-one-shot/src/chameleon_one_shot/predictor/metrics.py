"""How well an order of a task's candidates is predicted."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@attrs.frozen(kw_only=True)
class Quality:
    """How well candidates of one task, or on average of several, are put in order.

    Attributes:
        tau: Kendall's rank correlation (tau-b) of predicted scores and throughput.
        pairwise: share of the pairs of different throughput whose order is right; pairs that are
            predicted alike count half.
        top1: how much longer than the best candidate that of the best score takes, as a share.
        top10: the same of the best among the ten of the best scores.
    """

    tau: float
    pairwise: float
    top1: float
    top10: float

    @classmethod
    def of(cls, scores: Numbers, quality: Numbers) -> Quality:
        """The quality of scores of one task's candidates.

        Args:
            scores: higher is better, shape (n,).
            quality: logarithms of relative throughput, not all alike, shape (n,).
        """
        tau, pairwise = _order(scores, quality)
        return cls(
            tau=tau,
            pairwise=pairwise,
            top1=regret(scores, quality, 1),
            top10=regret(scores, quality, 10),
        )

    @classmethod
    def mean(cls, several: Iterable[Quality]) -> Quality:
        """The mean of several tasks'."""
        table = np.array([attrs.astuple(quality) for quality in several], np.float64)
        tau, pairwise, top1, top10 = table.mean(axis=0).tolist()
        return cls(tau=tau, pairwise=pairwise, top1=top1, top10=top10)


def tau(scores: Numbers, quality: Numbers) -> float:
    """Kendall's tau-b of scores and quality; 0 if either is constant."""
    return _order(scores, quality)[0]


def regret(scores: Numbers, quality: Numbers, count: int) -> float:
    """How much longer than the best the best of the first ``count`` takes, as a share of it.

    If scores are equal, the slower candidates are taken to come first: nothing is won by chance.
    """
    first = np.lexsort((quality, -scores))[:count]
    return float(np.expm1(quality.max() - quality[first].max()))


def _order(scores: Numbers, quality: Numbers) -> tuple[float, float]:
    """Kendall's tau-b and the share of pairs in the right order, of n (n - 1) / 2 pairs."""
    concordant = discordant = tied_scores = tied_quality = 0
    count = len(scores)
    for row in range(count - 1):
        above = np.sign(scores[row + 1 :] - scores[row])
        wanted = np.sign(quality[row + 1 :] - quality[row])
        agree = above * wanted
        concordant += int((agree > 0).sum())
        discordant += int((agree < 0).sum())
        tied_scores += int(((above == 0) & (wanted != 0)).sum())
        tied_quality += int(((wanted == 0) & (above != 0)).sum())
    different = concordant + discordant
    spread = float(np.sqrt((different + tied_scores) * float(different + tied_quality)))
    correlation = (concordant - discordant) / spread if spread else 0.0
    pairs = different + tied_scores
    return correlation, (concordant + 0.5 * tied_scores) / pairs if pairs else 0.5
