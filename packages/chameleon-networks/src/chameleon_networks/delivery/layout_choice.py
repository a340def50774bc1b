"""Which layout a network's images get: asked for, or chosen by measuring a few convolutions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs
import structlog
from chameleon_core.stages import Trials
from chameleon_core.words import in_seconds
from chameleon_tvm.operators.layouts import with_rank
from chameleon_tvm.operators.specs import ConvolutionSpec, OperatorSpec

from chameleon_networks.delivery.check_report import Facts
from chameleon_networks.importers.options import DEFAULT

log = structlog.get_logger()

OTHER = "NCHW"
"""The layout beside ``DEFAULT``: channels first."""

GUESSES = 2
"""First guesses measured of a convolution in each layout: one of each of two algorithms."""

ENOUGH, MOST = 0.6, 4
"""Convolutions are measured, those with the most work first, until they do this share of all
convolutions' work, and at most so many."""

CLEAR, LEAST = 1.3, 2
"""Fewer are measured, but at least so many, if one layout takes this many times as long."""

MARGIN = 0.05
"""How much faster the other layout has to be: first guesses tell no smaller differences."""


@attrs.frozen(kw_only=True)
class LayoutChoice:
    """A layout and what speaks for it.

    Attributes:
        layout: of the images through the whole graph.
        reason: why, as a part of a sentence.
        seconds: by layout, of all occurrences of the measured convolutions in one inference;
            empty if nothing was measured.
        measured: distinct convolutions that were measured.
        share: of the work of the network's convolutions that these do.
        wall_seconds: that the choice took.
    """

    layout: str
    reason: str
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    measured: int = 0
    share: float = 0.0
    wall_seconds: float = 0.0

    @property
    def summary(self) -> str:
        """The choice as a sentence."""
        if not self.seconds:
            return f"{self.layout}, {self.reason}"
        times = ", ".join(f"{name} {in_seconds(took)}" for name, took in self.seconds.items())
        return f"{self.layout}, {self.reason}: {times} for {self.share:.0%} of their work"

    def to_json(self) -> Facts:
        """As JSON values; ``summary`` is for those who show it."""
        return {**attrs.asdict(self), "summary": self.summary}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json``."""
        return cls(**{name: value[name] for name in attrs.fields_dict(cls)})


def choose(specs: Sequence[OperatorSpec], trials: Trials) -> LayoutChoice:
    """The faster layout for a network.

    Only the convolution with the most work is sure to be measured. Others are if a small budget
    leaves time for them.

    Args:
        specs: its operators in the default layout, weighted.
        trials: measures.
    """
    started = time.perf_counter()
    groups = _by_shape(specs)
    if not groups:
        return LayoutChoice(layout=DEFAULT, reason="since there is no convolution")
    if not trials.measures_hardware:
        return LayoutChoice(layout=DEFAULT, reason="since the runner measures nothing")
    work = sum(_work(group) for group in groups)
    done, measured = 0.0, 0
    seconds = {DEFAULT: 0.0, OTHER: 0.0}
    for count, group in enumerate(groups[:MOST]):
        # What one more convolution takes is not known before it is measured; the first one is the
        # heaviest, so that the others should take no longer.
        passed = time.perf_counter() - started
        if count and passed * (count + 1) / count > trials.seconds:
            break
        times = _seconds(group, trials)
        if times is not None:
            measured += 1
            done += _work(group)
            for name, took in times.items():
                seconds[name] += took
        if done >= ENOUGH * work or (measured >= LEAST and _ratio(seconds) >= CLEAR):
            break
    if not measured:
        return LayoutChoice(
            layout=DEFAULT,
            reason="since no first guess has a time in both layouts",
            wall_seconds=time.perf_counter() - started,
        )
    faster = seconds[OTHER] < (1.0 - MARGIN) * seconds[DEFAULT]
    return LayoutChoice(
        layout=OTHER if faster else DEFAULT,
        reason=f"by first guesses of {measured} of {len(groups)} convolutions",
        seconds=seconds,
        measured=measured,
        share=done / work,
        wall_seconds=time.perf_counter() - started,
    )


def _ratio(seconds: Mapping[str, float]) -> float:
    """How many times as long the slower layout takes."""
    return max(seconds.values()) / min(seconds.values())


def _by_shape(specs: Sequence[OperatorSpec]) -> list[list[ConvolutionSpec]]:
    """Convolutions that differ in nothing but what follows them, those with most work first."""
    groups: dict[ConvolutionSpec, list[ConvolutionSpec]] = defaultdict(list)
    for spec in specs:
        if isinstance(spec, ConvolutionSpec):
            bare = attrs.evolve(
                spec, name="", weight=1, bias=False, residual=False, activation="none"
            )
            groups[bare].append(spec)
    return sorted(groups.values(), key=_work, reverse=True)


def _work(group: Sequence[ConvolutionSpec]) -> float:
    """Floating-point operations of all occurrences."""
    return sum(spec.weight * spec.flop for spec in group)


def _seconds(group: Sequence[ConvolutionSpec], trials: Trials) -> dict[str, float] | None:
    """Seconds of all occurrences in each layout; None unless both have a time."""
    spec = group[0]
    other = with_rank(OTHER, spec.rank)
    there = attrs.evolve(spec, name=f"{spec.name}_{OTHER}", layout=other, output_layout=other)
    ours = trials.best_seconds(spec.task(spec.name, trials.target), GUESSES)
    if ours is None:
        return None
    theirs = trials.best_seconds(
        there.task(there.name, trials.target), GUESSES, seconds_to_beat=ours
    )
    if theirs is None:
        return None
    occurrences = sum(spec.weight for spec in group)
    log.info(
        "layouts_measured",
        convolution=spec.name,
        microseconds={DEFAULT: round(1e6 * ours), OTHER: round(1e6 * theirs)},
    )
    return {DEFAULT: occurrences * ours, OTHER: occurrences * theirs}
