"""Networks that were judged, and those that no other is better than in everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

PARAMETERS = "parameters"
"""The score that is the number of weights."""


@attrs.frozen(kw_only=True)
class Point:
    """One judged network.

    Attributes:
        config: row of indices of the space.
        seconds: of all its convolutions, each measured alone; None if one was not.
        predicted_seconds: the same, with predictions for those that were not measured.
        scores: by name of the score.
        parameters: weights of all layers.
        multiply_adds: of all layers, for one sample.
        accepted: whether the deciding score is not below its bound.
        transforms: of each layer that is transformed, in words.
        channels: numbers of channels that are fewer than the original's, by group.
    """

    config: tuple[int, ...]
    seconds: float | None
    predicted_seconds: float
    scores: Mapping[str, float]
    parameters: int
    multiply_adds: int
    accepted: bool
    transforms: Mapping[str, str]
    channels: Mapping[str, int]

    @property
    def known_seconds(self) -> float:
        """Its seconds as far as they are measured, and predicted beyond that."""
        return self.predicted_seconds if self.seconds is None else self.seconds

    def speedup(self, original: Point) -> float:
        """How many times as fast it is as the original."""
        return original.known_seconds / self.known_seconds

    def cells(self, original: Point, score: str) -> tuple[str, ...]:
        """Milliseconds, speedup, score and weights in a row, for the terminal and for pages."""
        return (
            f"{1e3 * self.known_seconds:.3g}",
            f"{self.speedup(original):.2f}",
            f"{self.scores[score]:.4g}",
            f"{self.parameters:,}",
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Point:
        """The inverse of ``to_json``."""
        return cls(**{**value, "config": tuple(value["config"])})


def not_dominated(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows no other row is at most as large as in every column and smaller in one.

    Args:
        losses: shape (n, columns). The first of equal rows is kept.
    """
    best = np.ones(len(losses), np.bool_)
    for index, row in enumerate(losses):
        at_most = (losses <= row).all(axis=1)
        smaller = (losses < row).any(axis=1)
        equal_before = (losses[:index] == row).all(axis=1).any()
        best[index] = not (at_most & smaller).any() and not equal_before
    return best


def front(points: Sequence[Point], score: str) -> list[Point]:
    """The accepted and measured points that none dominates, fastest first.

    Args:
        points: judged networks.
        score: the one that decides.
    """
    usable = [
        point
        for point in points
        if point.accepted and point.seconds is not None and np.isfinite(point.seconds)
    ]
    if not usable:
        return []
    losses = np.array([[net.seconds, -net.scores[score], net.parameters] for net in usable])
    # Weights that are wanted are not to be few as well: nothing would be better than anything.
    columns = losses[:, :2] if score == PARAMETERS else losses
    best = not_dominated(columns.astype(np.float64))
    chosen = [net for net, keep in zip(usable, best, strict=True) if keep]
    return sorted(chosen, key=lambda net: net.seconds or 0.0)
