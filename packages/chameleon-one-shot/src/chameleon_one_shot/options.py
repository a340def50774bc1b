"""Options of the cost model ``one-shot``. This module imports no machine-learning library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins.options import option

AUTO = "auto"


@attrs.frozen(kw_only=True)
class OneShotOptions:
    """Options of the cost model ``one-shot``."""

    model: str = option(
        AUTO,
        "a file of `chameleon pretrain`, the name of an included model, or auto for "
        "the included one whose device is most like this one",
    )
    finetune: bool = option(False, "fit a linear correction to the task's measurements")
    kappa: float = option(
        1.0, "weight of the uncertainty in a score, with finetune; more explores more", at_least=0.0
    )
    caution: float = option(
        0.0,
        "standard deviations taken off a prediction, without finetune: the best of "
        "many predictions is likely to be one that is too high",
        at_least=0.0,
    )
    fallback: tuple[StageSpec | str, ...] = option(
        ("alternating",),
        "what tunes tasks unlike those that it was trained on",
        validators.min_len(1),
        validators.max_len(1),
        stages="cost_models",
    )
