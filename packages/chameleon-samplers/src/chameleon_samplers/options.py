"""Options of the samplers. Importing them imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators


@attrs.frozen(kw_only=True)
class GreedyOptions:
    """Options of ``greedy``; the default is AutoTVM's number."""

    epsilon: float = attrs.field(
        default=0.05,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "share of a batch drawn at random from the whole space"},
    )


@attrs.frozen(kw_only=True)
class KMeansKneeOptions:
    """Options of ``kmeans-knee``.

    The defaults differ from Algorithm 1 as written, which stops at its second number of clusters.
    ``literal`` and ``release`` give the paper's and the released code's ways.
    """

    threshold: float = attrs.field(
        default=2.5,
        validator=validators.gt(1.0),
        metadata={"help": "more clusters as long as the loss falls by more than this factor"},
    )
    smallest: int = attrs.field(
        default=8, validator=validators.ge(1), metadata={"help": "clusters tried first"}
    )
    largest: int = attrs.field(
        default=64, validator=validators.ge(1), metadata={"help": "clusters tried at most"}
    )
    step: int = attrs.field(
        default=8, validator=validators.ge(1), metadata={"help": "clusters added at a time"}
    )
    knobs: Literal["all", "widest"] = attrs.field(
        default="all",
        validator=validators.in_(("all", "widest")),
        metadata={"help": "what is clustered: all knobs, or the two with the most choices"},
    )
    scaled: bool = attrs.field(
        default=True, metadata={"help": "every knob counts the same, however many choices it has"}
    )
    representative: Literal["nearest", "best", "floor"] = attrs.field(
        default="nearest",
        validator=validators.in_(("nearest", "best", "floor")),
        metadata={
            "help": "what stands for a cluster: the candidate nearest to its centroid, its "
            "best-scored candidate, or the centroid itself, rounded down, measured or not"
        },
    )

    @classmethod
    def literal(cls) -> KMeansKneeOptions:
        """Algorithm 1 of the paper, to the letter."""
        return cls(step=1, scaled=False, representative="floor")

    @classmethod
    def release(cls) -> KMeansKneeOptions:
        """The options that the code released with the paper amounts to."""
        return cls(step=8, knobs="widest", scaled=False, representative="floor")


@attrs.frozen(kw_only=True)
class DiversityOptions:
    """Options of ``diversity``; ``release`` gives what AutoTVM's code does."""

    alpha: float = attrs.field(
        default=0.05,
        validator=validators.ge(0.0),
        metadata={"help": "what a knob value not in the batch yet is worth, in units of score"},
    )
    score_weight: float = attrs.field(
        default=1.0,
        validator=validators.ge(0.0),
        metadata={"help": "what the score counts beside it; AutoTVM's code has 0"},
    )
    ratio: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={"help": "only the best so many batches of candidates are picked from"},
    )

    @classmethod
    def release(cls) -> DiversityOptions:
        """The options of AutoTVM's code: among the best two batches, knob values count alone."""
        return cls(alpha=1.0, score_weight=0.0, ratio=2)


@attrs.frozen(kw_only=True)
class ModeOptions:
    """Options of ``mode``."""

    share: float = attrs.field(
        default=0.0,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "part of a batch, its last rows, replaced though it could be measured"},
    )
    tries: int = attrs.field(
        default=512,
        validator=validators.ge(1),
        metadata={"help": "combinations looked at per batch"},
    )


@attrs.frozen(kw_only=True)
class CrossoverOptions:
    """Options of ``crossover``."""

    share: float = attrs.field(
        default=0.125,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "part of a batch, its last rows, replaced though it could be measured"},
    )
    parents: int = attrs.field(
        default=8, validator=validators.ge(2), metadata={"help": "best measured that are combined"}
    )
    tries: int = attrs.field(
        default=16,
        validator=validators.ge(1),
        metadata={"help": "children bred per row that is replaced"},
    )
