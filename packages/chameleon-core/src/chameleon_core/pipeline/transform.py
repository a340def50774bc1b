"""How a network may be changed beyond its schedules, and how much of that is tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from attrs import validators

_TRANSFORMS = (
    *("group", "depthwise", "bottleneck"),
    *("split-outputs", "mixed-groups", "split-rows"),
)
"""Those of Turner et al. (ASPLOS 2021)."""


def _some(_: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    if not value:
        raise ValueError(f"'{attribute.name}' is empty; name one at least")


@attrs.frozen(kw_only=True)
class Transformation:
    """The section ``transform`` of a pipeline.

    Attributes:
        candidates: networks that are judged.
        transforms: what may be done to a convolution, stages of kind ``transforms``.
        sequence: transforms that are applied to one convolution after another, at most.
        widths: by which numbers the channels between convolutions may be divided.
        scores: what judges a network without training, stages of kind ``network_scores``; the
            first one decides, the others are reported.
        tolerance: how far below its bound the deciding score may be, relative to the original's.
        data: batches that scores are computed with: ``synthetic``, ``digits``, or a function
            that returns a DataLoader.
        batch: samples of the minibatch.
        rounds: how often operators of the most promising networks are measured.
        per_round: networks all of whose operators are measured in a round; 0 for none.
        measurements: configurations of each operator that are measured.
        records: folders of earlier runs whose measurements are used.
    """

    candidates: int = attrs.field(
        default=1000, validator=validators.ge(1), metadata={"help": "networks that are judged"}
    )
    transforms: tuple[Any, ...] = attrs.field(
        default=_TRANSFORMS,
        validator=_some,
        metadata={"stages": "transforms", "help": "what may be done to a convolution"},
    )
    sequence: int = attrs.field(
        default=2,
        validator=[validators.ge(1), validators.le(4)],
        metadata={"help": "transforms of one convolution, at most"},
    )
    widths: tuple[int, ...] = attrs.field(
        default=(1, 2, 4),
        validator=[_some, validators.deep_iterable(validators.ge(1))],
        metadata={"help": "divisors of the channels between convolutions"},
    )
    scores: tuple[Any, ...] = attrs.field(
        default=("parameters",),
        validator=_some,
        metadata={"stages": "network_scores", "help": "judge without training; the first decides"},
    )
    tolerance: float = attrs.field(
        default=0.0,
        validator=[validators.ge(0.0), validators.lt(1.0)],
        metadata={"help": "how far below its bound a network's score may be, relative to it"},
    )
    data: str = attrs.field(
        default="synthetic",
        metadata={
            "source": True,
            "help": "synthetic, digits, or 'file.py:function' that returns a DataLoader",
        },
    )
    batch: int = attrs.field(
        default=8,
        validator=validators.ge(2),
        metadata={"help": "samples of the minibatch, two at least: one has no batch statistics"},
    )
    rounds: int = attrs.field(
        default=3, validator=validators.ge(1), metadata={"help": "rounds of measuring operators"}
    )
    per_round: int = attrs.field(
        default=8,
        validator=validators.ge(0),
        metadata={"help": "networks measured in a round; 0 for latencies predicted from records"},
    )
    measurements: int = attrs.field(
        default=8,
        validator=validators.ge(1),
        metadata={"help": "configurations measured of each operator"},
    )
    records: tuple[Path, ...] = attrs.field(
        default=(),
        metadata={"path": True, "help": "folders of earlier runs whose measurements are used"},
    )

    def __attrs_post_init__(self) -> None:
        if 1 not in self.widths:
            raise ValueError("'widths' must have 1 among them, the network as it is")
