"""Options of the cost model ``one-shot``. This module imports no machine-learning library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.plugin_api import StageSpec, option

AUTO = "auto"


@attrs.frozen(kw_only=True)
class OneShotOptions:
    """Options of the cost model ``one-shot``."""

    model: str = option(
        AUTO,
        "a file from `chameleon pretrain`, the name of an included model, or auto: the "
        "included model for the most similar device that knows the task",
    )
    finetune: bool = option(False, "fit a linear correction to the task's measurements")
    kappa: float = option(
        1.0,
        "weight of the uncertainty in the score, with finetune; larger values explore more",
        at_least=0.0,
    )
    caution: float = option(
        0.0,
        "standard deviations to subtract from a prediction, without finetune, since the "
        "best of many predictions is probably too high",
        at_least=0.0,
    )
    fallback: tuple[StageSpec | str, ...] = option(
        ("alternating",),
        "the cost model for tasks unlike those of the predictor's training",
        validators.min_len(1),
        validators.max_len(1),
        stages="cost_models",
    )
