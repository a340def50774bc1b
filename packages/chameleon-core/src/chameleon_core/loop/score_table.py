"""Scores of a whole small space, so that a walk looks them up instead of asking the model."""

from __future__ import annotations

import numpy as np

from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import ScoreFunction, Scores

_TABULATED = 1 << 15
"""Legal configurations of a space that is scored as a whole: half of what 128 chains or episodes
may ask about in 500 steps, and asked in one call instead of 500."""


class ScoreTable:
    """A score function that asks the model about every configuration, once.

    The model is asked at the first call. Configurations outside the table, which are not legal,
    are the model's own affair.

    Args:
        score: the cost model's prediction.
        everything: all legal configurations, shape (m, knobs).
        space: their space.
    """

    def __init__(self, score: ScoreFunction, everything: Configs, space: DesignSpace) -> None:
        self._score = score
        self._space = space
        keys = space.keys(everything)
        order = np.argsort(keys, kind="stable")
        self._keys, self._everything = keys[order], everything[order]
        self._scores: Scores | None = None

    def __call__(self, configs: Configs) -> Scores:
        """Scores of shape (n,)."""
        if self._scores is None:
            self._scores = self._score(self._everything)
        keys = self._space.keys(configs)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        scores: Scores = self._scores[places]
        unknown = self._keys[places] != keys
        if unknown.any():
            scores[unknown] = self._score(np.asarray(configs)[unknown])
        return scores


def tabulated(score: ScoreFunction, space: DesignSpace) -> ScoreFunction:
    """The score function itself, or a table of it where the space is small enough for one."""
    everything = space.everything
    if everything is None or not 0 < len(everything) <= _TABULATED:
        return score
    return ScoreTable(score, everything, space)
