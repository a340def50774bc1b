"""The section ``transform`` of a pipeline: how a network may be changed, and how long to search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from attrs import validators
from chameleon_core.plugin_api import Section, option

_TRANSFORMS = (
    *("group", "depthwise", "bottleneck"),
    *("split-outputs", "mixed-groups", "split-rows"),
)
"""The default transforms, those of Turner et al. (ASPLOS 2021)."""


def _some(_: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    if not value:
        raise ValueError(f"'{attribute.name}' is empty; name one at least")


@attrs.frozen(kw_only=True)
class Transformation(Section):
    """The section ``transform`` of a pipeline file, which ``chameleon transform`` reads.

    Attributes:
        candidates: Number of networks to judge.
        transforms: Transforms that may be applied to a convolution, stages of the kind
            ``transforms``.
        sequence: Largest number of transforms that are applied one after another to a convolution.
        widths: Numbers by which the channels between convolutions may be divided.
        scores: Scores that judge a network without training, stages of the kind ``network_scores``.
            The first decides; the others are only reported.
        tolerance: By how much the lowest accepted first score is reduced, as a share of the
            original network's score. With 0, the lowest accepted score is that of the original
            network. For some scores, the lowest accepted score is also reduced in proportion to the
            multiply-adds.
        data: Data with which scores are computed: ``synthetic``, ``digits``, or a function that
            returns a DataLoader.
        batch: Number of samples of the minibatch.
        rounds: Number of times that operators of the most promising networks are measured.
        per_round: Number of networks whose operators are measured in a round; 0 to measure none.
        measurements: Number of configurations to measure for each operator.
        records: Folders of earlier runs whose measurements are used.
    """

    candidates: int = option(1000, "number of networks to judge", at_least=1)
    transforms: tuple[Any, ...] = option(
        _TRANSFORMS, "transforms that may be applied to a convolution", _some, stages="transforms"
    )
    sequence: int = option(2, "transforms of one convolution, at most", at_least=1, at_most=4)
    widths: tuple[int, ...] = option(
        (1, 2, 4),
        "divisors of the channels between convolutions",
        _some,
        validators.deep_iterable(validators.ge(1)),
    )
    scores: tuple[Any, ...] = option(
        ("parameters",), "scores before training; the first decides", _some, stages="network_scores"
    )
    tolerance: float = option(
        0.0,
        "how far below its bound a score may be, relative to the original's",
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
            raise ValueError("'widths' must include 1, which keeps the network's channels")
