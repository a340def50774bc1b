"""Options of the samplers and synthesizers. This module imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.plugins.options import option


@attrs.frozen(kw_only=True)
class GreedyOptions:
    """Options of the sampler ``greedy``. The default is AutoTVM's number."""

    epsilon: float = option(
        0.05, "share of a batch drawn at random from the whole space", at_least=0.0, at_most=1.0
    )


@attrs.frozen(kw_only=True)
class KMeansKneeOptions:
    """Options of the sampler ``kmeans-knee`` (Ahn et al. 2020).

    The defaults differ from Algorithm 1 of that paper, which stops at its second number of
    clusters. ``literal`` returns the options of the paper, and ``release`` those of its released
    code.
    """

    threshold: float = option(
        2.5, "more clusters as long as the loss falls by more than this factor", above=1.0
    )
    smallest: int = option(8, "clusters tried first", at_least=1)
    largest: int = option(64, "clusters tried at most", at_least=1)
    step: int = option(8, "clusters added at a time", at_least=1)
    knobs: Literal["all", "widest"] = option(
        "all",
        "what is clustered: all knobs, or the two with the most choices",
        validators.in_(("all", "widest")),
    )
    scaled: bool = option(True, "every knob counts the same, however many choices it has")
    representative: Literal["nearest", "best", "floor"] = option(
        "nearest",
        "what stands for a cluster: the candidate nearest to its centroid, its "
        "best-scored candidate, or the centroid itself, rounded down, measured or not",
        validators.in_(("nearest", "best", "floor")),
    )

    @classmethod
    def literal(cls) -> KMeansKneeOptions:
        """The options that follow Algorithm 1 of Ahn et al. (2020) to the letter."""
        return cls(step=1, scaled=False, representative="floor")

    @classmethod
    def release(cls) -> KMeansKneeOptions:
        """The options that match the code released with Ahn et al. (2020)."""
        return cls(step=8, knobs="widest", scaled=False, representative="floor")


@attrs.frozen(kw_only=True)
class DiversityOptions:
    """Options of the sampler ``diversity``; ``release`` returns those that match AutoTVM's code."""

    alpha: float = option(
        0.05, "what a knob value not in the batch yet is worth, in units of score", at_least=0.0
    )
    score_weight: float = option(
        1.0, "what the score counts beside it; AutoTVM's code has 0", at_least=0.0
    )
    ratio: int | None = option(
        None, "only the best so many batches of candidates are picked from", at_least=1
    )

    @classmethod
    def release(cls) -> DiversityOptions:
        """The options of AutoTVM's code.

        It picks from the best ``2 * count`` candidates, and only new knob values count.
        """
        return cls(alpha=1.0, score_weight=0.0, ratio=2)


@attrs.frozen(kw_only=True)
class ModeOptions:
    """Options of the synthesizer ``mode``."""

    share: float = option(
        0.0,
        "part of a batch, its last rows, replaced though it could be measured",
        at_least=0.0,
        at_most=1.0,
    )
    tries: int = option(512, "combinations looked at per batch", at_least=1)


@attrs.frozen(kw_only=True)
class CrossoverOptions:
    """Options of the synthesizer ``crossover``."""

    share: float = option(
        0.125,
        "part of a batch, its last rows, replaced though it could be measured",
        at_least=0.0,
        at_most=1.0,
    )
    parents: int = option(8, "best measured that are combined", at_least=2)
    tries: int = option(16, "children bred per row that is replaced", at_least=1)
