"""Options of the explorer ``ppo``. This module imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class PPOOptions:
    """Options of the explorer ``ppo``.

    The defaults are measured as "ppo default" in ``benchmarks/search_steps.py``. The preset
    ``paper`` has the numbers of Ahn et al. (2020), and the preset ``release`` those of the code
    released with that paper. The options ``keep_best`` and ``restarts`` let a walk find good
    configurations in far fewer steps; learning helps less.
    """

    episodes: int = option(128, "number of parallel walks (episodes)", at_least=1)
    steps: int = option(500, "largest number of steps of an episode", at_least=1)
    horizon: int = option(8, "number of steps between two updates of the agent", at_least=1)
    early_stop: int = option(
        50,
        "number of steps without new best candidates after which the walk ends; 0: never",
        at_least=0,
    )
    end_share: float | None = option(
        None,
        "share of knobs that must stay or be at a bound to end an episode; null: never",
        at_least=0.0,
        at_most=1.0,
    )
    network: Literal["tokens", "shared", "separate"] = option(
        "tokens",
        "tokens: weights shared by all knobs, for any space; "
        "shared: actor and critic on one first layer; separate: two networks",
        validators.in_(("tokens", "shared", "separate")),
    )
    width: int = option(32, "number of units of a hidden layer", at_least=1)
    temperature: float = option(1.0, "divisor of the policy's logits", above=0.0)
    moves: float = option(
        1.5,
        "number of knobs that an untrained policy moves per step; 0: all actions equally likely",
        at_least=0.0,
    )
    jumps: bool = option(
        True, "whether a knob has a fourth action, which chooses a random other value"
    )
    masking: bool = option(
        True, "never choose a step beyond a knob's bound, instead of clamping the step"
    )
    reward: Literal["score", "improvement", "record"] = option(
        "record",
        "score: score of the new configuration; improvement: its gain over the last step; "
        "record: its gain over the best of the episode",
        validators.in_(("score", "improvement", "record")),
    )
    keep_best: bool = option(True, "an episode does not follow a step to a lower score")
    illegal_penalty: float = option(
        0.0, "number subtracted from the reward of an illegal move", at_least=0.0
    )
    elites: int = option(
        32, "number of episodes that start at the best measured configurations", at_least=0
    )
    restarts: float = option(
        0.25,
        "share of episodes, the worst ones, that continue from the best candidates after "
        "every update",
        at_least=0.0,
        at_most=1.0,
    )
    learning_rate: float = option(3e-3, "step size of Adam", at_least=0.0)
    discount: float = option(0.9, "discount factor of the rewards", at_least=0.0, at_most=1.0)
    gae: float = option(0.99, "decay of the advantage estimation", at_least=0.0, at_most=1.0)
    epochs: int = option(3, "passes over every rollout", at_least=1)
    clip: float = option(
        0.3, "distance from 1 at which the probability ratio is clipped", above=0.0
    )
    value_coefficient: float = option(1.0, "weight of the loss of the value", at_least=0.0)
    entropy: float = option(0.1, "weight of the entropy bonus", at_least=0.0)
    entropy_end: float | None = option(
        None,
        "weight of the entropy bonus at the last step of a round; null: the same as at the first",
        at_least=0.0,
    )
    minibatch: int | None = option(
        None,
        "number of transitions per gradient step, drawn with replacement; null: all",
        at_least=1,
    )
    transfer: bool = option(
        False, "use one agent for all tasks of a run; only with `network: tokens`"
    )

    @transfer.validator
    def _check_transfer(self, _attribute: object, transfer: bool) -> None:
        if transfer and self.network != "tokens":
            raise ValueError(
                f"transfer needs network: tokens, since a network of kind {self.network!r} "
                "fits the knobs of one space only"
            )
