"""Networks with their times and scores, and the front: those that no other network dominates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

PARAMETERS = "parameters"
"""Name of the score that counts weights."""


@attrs.frozen(kw_only=True)
class Point:
    """A transformed network with its times, scores and sizes.

    Attributes:
        seconds: Sum of the seconds of all its convolutions, each measured alone; None if one of
            them was not measured.
        predicted_seconds: The sum of the seconds of all convolutions, with predictions for those
            that were not measured.
        scores: The scores, by name.
        parameters: Number of weights of all layers.
        multiply_adds: Number of multiply-adds of all layers, for one sample.
        accepted: Whether the first score of the pipeline is as high as the search requires.
        transforms: The label of the transforms of each transformed layer, by layer name.
        channels: The number of channels of each group that has fewer channels than in the original
            network, by the group's name.
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
        """The seconds of all convolutions: measured if all were measured, else predicted."""
        return self.predicted_seconds if self.seconds is None else self.seconds

    def speedup(self, original: Point) -> float:
        """The seconds of the original over the seconds of this network."""
        return original.known_seconds / self.known_seconds

    def cells(self, original: Point, score: str) -> tuple[str, ...]:
        """The cells of a table row about a network: milliseconds, speedup, score, weights."""
        return (
            f"{1e3 * self.known_seconds:.3g}",
            f"{self.speedup(original):.2f}",
            f"{self.scores[score]:.4g}",
            f"{self.parameters:,}",
        )

    def to_json(self) -> dict[str, Any]:
        """The point as JSON values."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Point:
        """The point of JSON values that ``to_json`` returned."""
        return cls(**{**value, "config": tuple(value["config"])})


def pareto_mask(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the rows (n, columns) that no other row dominates, the first of equal ones."""
    best = np.ones(len(losses), np.bool_)
    for index, row in enumerate(losses):
        at_most = (losses <= row).all(axis=1)
        smaller = (losses < row).any(axis=1)
        equal_before = (losses[:index] == row).all(axis=1).any()
        best[index] = not (at_most & smaller).any() and not equal_before
    return best


def front(points: Sequence[Point], score: str) -> list[Point]:
    """The accepted, measured networks that no other dominates in time and score, fastest first."""
    usable = [
        point
        for point in points
        if point.accepted and point.seconds is not None and np.isfinite(point.seconds)
    ]
    if not usable:
        return []
    losses = np.array([[net.seconds, -net.scores[score], net.parameters] for net in usable])
    # If the score is the number of weights, it cannot also be a cost. Otherwise no network would
    # dominate another.
    columns = losses[:, :2] if score == PARAMETERS else losses
    best = pareto_mask(columns.astype(np.float64))
    chosen = [net for net, keep in zip(usable, best, strict=True) if keep]
    return sorted(chosen, key=lambda net: net.seconds or 0.0)
