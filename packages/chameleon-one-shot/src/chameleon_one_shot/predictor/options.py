"""Options of training. Importing them imports no learning library."""

from __future__ import annotations

import attrs
from attrs import validators

KINDS = ("trees", "networks")
"""Kinds of predictors."""


@attrs.frozen(kw_only=True)
class Architecture:
    """Sizes of a network.

    Attributes:
        width: of a token.
        heads: of each attention; they divide the width.
        layers: of the encoder; in the last one only the token that is read out attends.
        dropout: share of the activations left out in training, of the token that is read out.
    """

    width: int = 48
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1


@attrs.frozen(kw_only=True)
class TrainingOptions:
    """How a predictor is trained.

    Attributes:
        kind: ``trees`` that boost each other, or ``networks`` of attention.
        architecture: sizes of its networks.
        members: trees' boosters or networks, whose mean is the prediction.
        steps: of a network's training at most, as all that follow but the seed.
        tasks: of a batch.
        candidates: of each task of a batch.
        learning_rate: the largest.
        weight_decay: of AdamW.
        ranking: weight of the ranking loss beside the regression's; 0 for none.
        inverse_density: whether rare targets are drawn more often.
        unknown: share of the names of tokens that are made unknown in training.
        evaluate_every: steps between two evaluations.
        patience: evaluations without a better one after which the training ends.
        seed: of everything that is drawn.
        device: torch's name of the device to train on.
    """

    kind: str = attrs.field(default="trees", validator=validators.in_(KINDS))
    architecture: Architecture = Architecture()
    members: int = attrs.field(default=2, validator=validators.ge(1))
    steps: int = attrs.field(default=2000, validator=validators.ge(1))
    tasks: int = attrs.field(default=12, validator=validators.ge(1))
    candidates: int = attrs.field(default=32, validator=validators.ge(2))
    learning_rate: float = attrs.field(default=2e-3, validator=validators.gt(0.0))
    weight_decay: float = attrs.field(default=1e-2, validator=validators.ge(0.0))
    ranking: float = attrs.field(default=1.0, validator=validators.ge(0.0))
    inverse_density: bool = True
    unknown: float = attrs.field(default=0.02, validator=validators.ge(0.0))
    evaluate_every: int = attrs.field(default=50, validator=validators.ge(1))
    patience: int = attrs.field(default=8, validator=validators.ge(1))
    seed: int = 0
    device: str = "cpu"
