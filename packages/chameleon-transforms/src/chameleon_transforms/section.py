"""How a network may be changed beyond its schedules, and how much of that is tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from attrs import validators
from chameleon_core.plugins.options import option
from chameleon_core.plugins.records import Section

_TRANSFORMS = (
    *("group", "depthwise", "bottleneck"),
    *("split-outputs", "mixed-groups", "split-rows"),
)
"""Those of Turner et al. (ASPLOS 2021)."""


def _some(_: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    if not value:
        raise ValueError(f"'{attribute.name}' is empty; name one at least")


@attrs.frozen(kw_only=True)
class Transformation(Section):
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

    candidates: int = option(1000, "networks that are judged", at_least=1)
    transforms: tuple[Any, ...] = option(
        _TRANSFORMS, "what may be done to a convolution", _some, stages="transforms"
    )
    sequence: int = option(2, "transforms of one convolution, at most", at_least=1, at_most=4)
    widths: tuple[int, ...] = option(
        (1, 2, 4),
        "divisors of the channels between convolutions",
        _some,
        validators.deep_iterable(validators.ge(1)),
    )
    scores: tuple[Any, ...] = option(
        ("parameters",), "judge without training; the first decides", _some, stages="network_scores"
    )
    tolerance: float = option(
        0.0,
        "how far below its bound a network's score may be, relative to it",
        validators.lt(1.0),
        at_least=0.0,
    )
    data: str = option(
        "synthetic",
        "synthetic, digits, or 'file.py:function' that returns a DataLoader",
        source=True,
    )
    batch: int = option(
        8, "samples of the minibatch, two at least: one has no batch statistics", at_least=2
    )
    rounds: int = option(3, "rounds of measuring operators", at_least=1)
    per_round: int = option(
        8, "networks measured in a round; 0 for latencies predicted from records", at_least=0
    )
    measurements: int = option(8, "configurations measured of each operator", at_least=1)
    records: tuple[Path, ...] = option(
        (), "folders of earlier runs whose measurements are used", path=True
    )

    def __attrs_post_init__(self) -> None:
        if 1 not in self.widths:
            raise ValueError("'widths' must have 1 among them, the network as it is")
