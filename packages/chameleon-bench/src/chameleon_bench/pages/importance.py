"""Which knobs matter: the share of what was measured that each explains by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chameleon_bench.pages.measured import Measured

LEAST = 8
"""Measurements below which shares would say nothing."""


def knob_shares(measured: Measured) -> dict[str, float]:
    """The share of the variance of log time that each knob explains alone, the largest first.

    A one-way analysis of variance for each knob, among the measurements that have a time: the
    first-order effect of Sobol' (1993), in the unbiased form of Kelley's epsilon squared (1935),
    ``1 - within-group mean square / total mean square``. A knob with many values explains much
    by chance alone, which the mean squares allow for. A knob that does not apply counts as one
    more value of it. Shares need not add up to 1: knobs act together, and a search does not visit
    their values evenly.

    Args:
        measured: of one operator.

    Returns:
        Shares from 0 to 1 by knob; empty where too little has a time, or all is equally fast.
    """
    ok = measured.ok
    logs = np.log(measured.seconds[ok])
    if len(logs) < LEAST or np.ptp(logs) == 0.0:
        return {}
    total = float(logs.var(ddof=1))
    shares = {
        name: _share(logs, knob.codes[ok] + 1, total) for name, knob in measured.knobs.items()
    }
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _share(logs: NDArray[np.float64], groups: NDArray[np.int64], total: float) -> float:
    """Epsilon squared of one grouping.

    Args:
        logs: shape (n,).
        groups: the group of each, from 0, shape (n,).
        total: variance of ``logs``.
    """
    counts = np.bincount(groups)
    free = len(logs) - int(np.count_nonzero(counts))
    if free <= 0:
        return 0.0
    means = np.bincount(groups, logs) / np.maximum(counts, 1)
    within = float(((logs - means[groups]) ** 2).sum()) / free
    return min(1.0, max(0.0, 1.0 - within / total))


__all__ = ["LEAST", "knob_shares"]
