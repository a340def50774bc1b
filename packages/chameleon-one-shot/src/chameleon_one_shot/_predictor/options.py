"""Options of training. This module imports no machine-learning library."""

from __future__ import annotations

import attrs
from attrs import validators

KINDS = ("trees", "networks")
"""The kinds of predictors."""


@attrs.frozen(kw_only=True)
class Architecture:
    """The sizes of a network.

    Attributes:
        heads: the number of attention heads; it must divide the width.
        layers: the number of layers, of which the last computes only the token for the prediction.
        dropout: the share of activations that the last layer drops in training.
    """

    width: int = 48
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1


@attrs.frozen(kw_only=True)
class TrainingOptions:
    """The options with which a predictor is trained.

    Attributes:
        kind: ``trees`` for boosted trees, or ``networks`` with attention.
        architecture: The sizes of the networks.
        members: The number of boosters or networks, whose mean is the prediction.
        steps: The largest number of training steps. All options below, except ``seed``, are only
            for networks.
        tasks: The number of tasks per batch.
        candidates: The number of candidates per task in a batch.
        learning_rate: The largest learning rate.
        weight_decay: The weight decay of AdamW.
        ranking: The weight of the ranking loss, beside the regression loss; 0 for none.
        inverse_density: Whether rare targets are drawn more often.
        unknown: The share of token names that training replaces by one name for unknown tokens, so
            that a network learns to handle new names.
        evaluate_every: The number of steps between two evaluations.
        patience: The number of evaluations without improvement after which the training ends.
        seed: The seed of all random choices.
        device: PyTorch's name of the device to train on.
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
