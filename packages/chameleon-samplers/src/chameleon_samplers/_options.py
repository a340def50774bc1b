"""Options of the samplers and synthesizers. This module imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class GreedyOptions:
    """Options of the sampler ``greedy``. The default is AutoTVM's number."""

    epsilon: float = option(
        0.05, "share of a batch drawn at random from the whole space", at_least=0.0, at_most=1.0
    )


@attrs.frozen(kw_only=True)
class KMeansKneeOptions:
    """Options of the sampler ``kmeans-knee`` (Ahn et al. 2020).

    The defaults differ from Algorithm 1 of that paper, because the algorithm to the letter never
    tries more than two numbers of clusters. ``literal`` returns the options of the paper, and
    ``release`` those of its released code.
    """

    threshold: float = option(
        2.5, "factor by which the loss must fall to try more clusters", above=1.0
    )
    smallest: int = option(8, "number of clusters to try first", at_least=1)
    largest: int = option(64, "largest number of clusters to try", at_least=1)
    step: int = option(8, "number of clusters to add at a time", at_least=1)
    knobs: Literal["all", "widest"] = option(
        "all",
        "all: cluster by all knobs; widest: by the two knobs with the most choices",
        validators.in_(("all", "widest")),
    )
    scaled: bool = option(True, "scale all knobs to the same range, however many choices they have")
    representative: Literal["nearest", "best", "floor"] = option(
        "nearest",
        "the configuration to measure per cluster: the candidate nearest to the centroid, "
        "the candidate with the best score, or the centroid rounded down",
        validators.in_(("nearest", "best", "floor")),
    )

    @classmethod
    def literal(cls) -> KMeansKneeOptions:
        """The sampler's options that follow Algorithm 1 of Ahn et al. (2020) to the letter."""
        return cls(step=1, scaled=False, representative="floor")

    @classmethod
    def release(cls) -> KMeansKneeOptions:
        """The sampler's options that match the code released with Ahn et al. (2020)."""
        return cls(step=8, knobs="widest", scaled=False, representative="floor")


@attrs.frozen(kw_only=True)
class DiversityOptions:
    """Options of the sampler ``diversity``; ``release`` returns those that match AutoTVM's code."""

    alpha: float = option(
        0.05, "weight of a knob value that is new to the batch, in units of the score", at_least=0.0
    )
    score_weight: float = option(
        1.0, "weight of the score, beside new knob values; 0 in AutoTVM's code", at_least=0.0
    )
    ratio: int | None = option(
        None, "number of batches of best candidates to pick from; null: all candidates", at_least=1
    )

    @classmethod
    def release(cls) -> DiversityOptions:
        """The options of AutoTVM's code."""
        return cls(alpha=1.0, score_weight=0.0, ratio=2)


@attrs.frozen(kw_only=True)
class ModeOptions:
    """Options of the synthesizer ``mode``."""

    share: float = option(
        0.0,
        "share of a batch, from its end, to replace even if it could be measured",
        at_least=0.0,
        at_most=1.0,
    )
    tries: int = option(512, "number of combinations to try per batch", at_least=1)


@attrs.frozen(kw_only=True)
class CrossoverOptions:
    """Options of the synthesizer ``crossover``."""

    share: float = option(
        0.125,
        "share of a batch, from its end, to replace even if it could be measured",
        at_least=0.0,
        at_most=1.0,
    )
    parents: int = option(8, "number of fastest measured configurations to combine", at_least=2)
    tries: int = option(16, "number of children to try per replaced configuration", at_least=1)
