"""Options of the cost model. Importing them imports no learning library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.pipeline.schema import StageSpec

AUTO = "auto"


@attrs.frozen(kw_only=True)
class OneShotOptions:
    """Options of ``one-shot``."""

    model: str = attrs.field(
        default=AUTO,
        metadata={
            "help": "a file of `chameleon pretrain`, the name of an included model, or auto for "
            "the included one whose device is most like this one"
        },
    )
    finetune: bool = attrs.field(
        default=False, metadata={"help": "fit a linear correction to the task's measurements"}
    )
    kappa: float = attrs.field(
        default=1.0,
        validator=validators.ge(0.0),
        metadata={
            "help": "weight of the uncertainty in a score, with finetune; more explores more"
        },
    )
    caution: float = attrs.field(
        default=0.0,
        validator=validators.ge(0.0),
        metadata={
            "help": "standard deviations taken off a prediction, without finetune: the best of "
            "many predictions is likely to be one that is too high"
        },
    )
    fallback: tuple[StageSpec | str, ...] = attrs.field(
        default=("alternating",),
        validator=[validators.min_len(1), validators.max_len(1)],
        metadata={
            "stages": "cost_models",
            "help": "what tunes tasks unlike those that it was trained on",
        },
    )
