"""Options of ``ppo``. Importing them imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators

_POSITIVE = validators.gt(0.0)
_SHARE = validators.and_(validators.ge(0.0), validators.le(1.0))


@attrs.frozen(kw_only=True)
class PPOOptions:
    """Options of ``ppo``.

    The defaults are those of ``benchmarks/search_steps.py``'s "ppo default"; the presets ``paper``
    and ``release`` hold the published numbers and those of the code published with them. Keeping
    the best and restarting at the best candidates shorten the walk far more than learning does.
    """

    episodes: int = attrs.field(
        default=128, validator=validators.ge(1), metadata={"help": "episodes that walk at once"}
    )
    steps: int = attrs.field(
        default=500, validator=validators.ge(1), metadata={"help": "steps of an episode at most"}
    )
    horizon: int = attrs.field(
        default=8,
        validator=validators.ge(1),
        metadata={"help": "steps of all episodes between two updates of the agent"},
    )
    early_stop: int = attrs.field(
        default=50,
        validator=validators.ge(0),
        metadata={"help": "stop after so many steps without a change of the best set; 0: never"},
    )
    end_share: float | None = attrs.field(
        default=None,
        validator=validators.optional(_SHARE),
        metadata={"help": "an episode ends when this share of knobs stays or sits at a bound"},
    )
    network: Literal["tokens", "shared", "separate"] = attrs.field(
        default="tokens",
        validator=validators.in_(("tokens", "shared", "separate")),
        metadata={
            "help": "tokens: weights shared by all knobs, for any space; "
            "shared: actor and critic on one first layer; separate: two networks"
        },
    )
    width: int = attrs.field(
        default=32, validator=validators.ge(1), metadata={"help": "units of a hidden layer"}
    )
    temperature: float = attrs.field(
        default=1.0, validator=_POSITIVE, metadata={"help": "divides the logits of the policy"}
    )
    moves: float = attrs.field(
        default=1.5,
        validator=validators.ge(0.0),
        metadata={
            "help": "knobs that an untrained policy moves a step; 0: all actions equally likely"
        },
    )
    jumps: bool = attrs.field(
        default=True, metadata={"help": "a fourth action per knob: any other choice, at random"}
    )
    masking: bool = attrs.field(
        default=True,
        metadata={"help": "never choose a move past a knob's bound, instead of clamping it"},
    )
    reward: Literal["score", "improvement", "record"] = attrs.field(
        default="record",
        validator=validators.in_(("score", "improvement", "record")),
        metadata={
            "help": "score: of the configuration reached; improvement: over the last step; "
            "record: over the best of the episode"
        },
    )
    keep_best: bool = attrs.field(
        default=True,
        metadata={"help": "an episode does not follow a step to a lower score"},
    )
    illegal_penalty: float = attrs.field(
        default=0.0,
        validator=validators.ge(0.0),
        metadata={"help": "taken from the reward of a move that is not legal"},
    )
    elites: int = attrs.field(
        default=32,
        validator=validators.ge(0),
        metadata={"help": "episodes that start at the best configurations measured"},
    )
    restarts: float = attrs.field(
        default=0.25,
        validator=_SHARE,
        metadata={
            "help": "share of episodes, the worst, that go on from the best candidates found "
            "after every update"
        },
    )
    learning_rate: float = attrs.field(
        default=3e-3, validator=validators.ge(0.0), metadata={"help": "step size of Adam"}
    )
    discount: float = attrs.field(
        default=0.9, validator=_SHARE, metadata={"help": "discount factor of the rewards"}
    )
    gae: float = attrs.field(
        default=0.99, validator=_SHARE, metadata={"help": "decay of the advantage estimation"}
    )
    epochs: int = attrs.field(
        default=3, validator=validators.ge(1), metadata={"help": "passes over every rollout"}
    )
    clip: float = attrs.field(
        default=0.3, validator=_POSITIVE, metadata={"help": "clipping of the probability ratio"}
    )
    value_coefficient: float = attrs.field(
        default=1.0, validator=validators.ge(0.0), metadata={"help": "weight of the value's error"}
    )
    entropy: float = attrs.field(
        default=0.1, validator=validators.ge(0.0), metadata={"help": "weight of the entropy bonus"}
    )
    entropy_end: float | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(0.0)),
        metadata={"help": "its weight at the last step of a round; null: it stays the same"},
    )
    minibatch: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={"help": "transitions per gradient step, drawn with replacement; null: all"},
    )
    transfer: bool = attrs.field(
        default=False,
        metadata={"help": "one agent for all tasks of a run; only with network: tokens"},
    )

    @transfer.validator
    def _check_transfer(self, _attribute: object, transfer: bool) -> None:
        if transfer and self.network != "tokens":
            raise ValueError(
                f"transfer needs network: tokens, since a network of kind {self.network!r} "
                "fits the knobs of one space only"
            )
