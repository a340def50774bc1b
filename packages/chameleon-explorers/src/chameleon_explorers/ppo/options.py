"""Options of the explorer ``ppo``. This module imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.plugins.options import option


@attrs.frozen(kw_only=True)
class PPOOptions:
    """Options of the explorer ``ppo``.

    The defaults equal "ppo default" in ``benchmarks/search_steps.py``. The preset ``paper`` has the
    numbers of Ahn et al. (2020), and the preset ``release`` those of the code released with that
    paper. The options ``keep_best`` and ``restarts`` let a walk find good configurations in far
    fewer steps; learning helps less.
    """

    episodes: int = option(128, "episodes that walk at once", at_least=1)
    steps: int = option(500, "steps of an episode at most", at_least=1)
    horizon: int = option(8, "steps of all episodes between two updates of the agent", at_least=1)
    early_stop: int = option(
        50, "stop after so many steps without a change of the best set; 0: never", at_least=0
    )
    end_share: float | None = option(
        None,
        "an episode ends when this share of knobs stays or sits at a bound",
        at_least=0.0,
        at_most=1.0,
    )
    network: Literal["tokens", "shared", "separate"] = option(
        "tokens",
        "tokens: weights shared by all knobs, for any space; "
        "shared: actor and critic on one first layer; separate: two networks",
        validators.in_(("tokens", "shared", "separate")),
    )
    width: int = option(32, "units of a hidden layer", at_least=1)
    temperature: float = option(1.0, "divides the logits of the policy", above=0.0)
    moves: float = option(
        1.5,
        "knobs that an untrained policy moves a step; 0: all actions equally likely",
        at_least=0.0,
    )
    jumps: bool = option(True, "a fourth action per knob: any other choice, at random")
    masking: bool = option(True, "never choose a move past a knob's bound, instead of clamping it")
    reward: Literal["score", "improvement", "record"] = option(
        "record",
        "score: of the configuration reached; improvement: over the last step; "
        "record: over the best of the episode",
        validators.in_(("score", "improvement", "record")),
    )
    keep_best: bool = option(True, "an episode does not follow a step to a lower score")
    illegal_penalty: float = option(
        0.0, "taken from the reward of a move that is not legal", at_least=0.0
    )
    elites: int = option(32, "episodes that start at the best configurations measured", at_least=0)
    restarts: float = option(
        0.25,
        "share of episodes, the worst, that go on from the best candidates found "
        "after every update",
        at_least=0.0,
        at_most=1.0,
    )
    learning_rate: float = option(3e-3, "step size of Adam", at_least=0.0)
    discount: float = option(0.9, "discount factor of the rewards", at_least=0.0, at_most=1.0)
    gae: float = option(0.99, "decay of the advantage estimation", at_least=0.0, at_most=1.0)
    epochs: int = option(3, "passes over every rollout", at_least=1)
    clip: float = option(0.3, "clipping of the probability ratio", above=0.0)
    value_coefficient: float = option(1.0, "weight of the value's error", at_least=0.0)
    entropy: float = option(0.1, "weight of the entropy bonus", at_least=0.0)
    entropy_end: float | None = option(
        None, "its weight at the last step of a round; null: it stays the same", at_least=0.0
    )
    minibatch: int | None = option(
        None, "transitions per gradient step, drawn with replacement; null: all", at_least=1
    )
    transfer: bool = option(False, "one agent for all tasks of a run; only with network: tokens")

    @transfer.validator
    def _check_transfer(self, _attribute: object, transfer: bool) -> None:
        if transfer and self.network != "tokens":
            raise ValueError(
                f"transfer needs network: tokens, since a network of kind {self.network!r} "
                "fits the knobs of one space only"
            )
