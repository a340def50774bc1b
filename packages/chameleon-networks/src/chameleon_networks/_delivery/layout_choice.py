"""Chooses the layout of a network's images by the time of a few convolutions.

Convolutions are measured, or estimated if the run must not measure. They are also only estimated if
the estimates of two layouts are far apart. The permutations that a layout needs are always
estimated. In a small network, permutations can take longer than the layout saves.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import attrs
import structlog
from chameleon_core.api import words
from chameleon_core.plugin_api import Frontend
from chameleon_tvm.api import (
    FLOAT_BYTES,
    TRANSPOSE_CYCLES,
    ConvolutionSpec,
    OperatorSpec,
    kind_of,
    target_info,
    with_rank,
)

from chameleon_networks._checks.check import Facts
from chameleon_networks._importers.options import DEFAULT

log = structlog.get_logger()

OTHER = "NCHW"
"""The layout that is compared with ``DEFAULT``: channels first."""

GUESSES = 2
"""Number of first guesses that are measured for a convolution in each layout, one for each of two
algorithms."""

ENOUGH, MOST = 0.6, 4
"""Convolutions are measured in the order of their work, until they do the share ``ENOUGH`` of all
convolutions' work. At most ``MOST`` convolutions are measured."""

CLEAR, LEAST = 1.3, 2
"""Measuring ends after ``LEAST`` convolutions if one layout takes ``CLEAR`` times as long."""

SURE = 2.0
"""Nothing is measured if one layout takes ``SURE`` times as long by the estimates alone."""

MARGIN = 0.05
"""How much faster the other layout must be. First guesses do not show smaller differences."""


@attrs.frozen(kw_only=True)
class LayoutChoice:
    """The chosen layout of a network's images, and the reason for it.

    Attributes:
        layout: The layout of images through the whole graph.
        reason: The reason, as a part of a sentence.
        seconds: For each layout, the seconds of all occurrences of the measured convolutions in one
            inference. Empty if nothing was measured.
        measured: Number of distinct convolutions that were measured.
        share: The measured convolutions' share of the work of all convolutions of the network.
        wall_seconds: Seconds that the choice took.
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
        times = ", ".join(f"{name} {words.in_seconds(took)}" for name, took in self.seconds.items())
        return f"{self.layout}, {self.reason}: {times} for {self.share:.0%} of their work"

    def to_json(self) -> Facts:
        """The choice as JSON values, with its ``summary``."""
        return {**attrs.asdict(self), "summary": self.summary}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Make a choice from the result of ``to_json``."""
        return cls(**{name: value[name] for name in attrs.fields_dict(cls)})


def choose(
    specs: Sequence[OperatorSpec],
    trials: Frontend.Trials,
    moved: Callable[[str], int] = lambda _: 0,
) -> LayoutChoice:
    """Choose the faster layout by timing convolutions, the one with most work first."""
    started = time.perf_counter()
    groups = _by_shape(specs)
    if not groups:
        return LayoutChoice(layout=DEFAULT, reason="since there is no convolution")
    if not trials.measures_hardware:
        return LayoutChoice(layout=DEFAULT, reason="since the runner measures nothing")
    work = sum(_work(group) for group in groups)
    measured: list[list[ConvolutionSpec]] = []
    seconds = {DEFAULT: 0.0, OTHER: 0.0}
    estimated = _cycles(groups[:MOST], trials)
    sure = estimated is not None and _ratio(estimated) >= SURE
    for count, group in enumerate(() if sure else groups[:MOST]):
        # The time for one more convolution is estimated from the earlier ones. The first one is the
        # heaviest, so the others should take no longer.
        passed = time.perf_counter() - started
        if count and passed * (count + 1) / count > trials.seconds:
            break
        times = _seconds(group, trials)
        if times is not None:
            measured.append(group)
            for name, took in times.items():
                seconds[name] += took
        done = sum(_work(group) for group in measured)
        if done >= ENOUGH * work or (len(measured) >= LEAST and _ratio(seconds) >= CLEAR):
            break
    judged = measured or groups[:MOST]
    guessed = _cycles(measured, trials) if measured else estimated
    if not measured and guessed is None:
        return LayoutChoice(
            layout=DEFAULT,
            reason="since no first guess has a time in both layouts",
            wall_seconds=time.perf_counter() - started,
        )
    share = sum(_work(group) for group in judged) / work
    times = seconds if measured else (guessed or {})
    # Estimates are in cycles. The measured convolutions give the seconds of a cycle.
    scale = 0.0 if guessed is None else share * times[DEFAULT] / guessed[DEFAULT]

    def whole(layout: str) -> float:
        return times[layout] + scale * _move_cycles(moved(layout), trials.target)

    here = whole(DEFAULT)
    # `moved` makes the graph in the other layout, so it is only called if that layout may be
    # faster.
    faster = times[OTHER] < (1.0 - MARGIN) * here and whole(OTHER) < (1.0 - MARGIN) * here
    basis = "first guesses" if measured else "estimates"
    moving = " and estimates of transposes" if here > times[DEFAULT] else ""
    return LayoutChoice(
        layout=OTHER if faster else DEFAULT,
        reason=f"by {basis} of {len(judged)} of {len(groups)} convolutions{moving}",
        seconds=seconds if measured else {},
        measured=len(measured),
        share=share,
        wall_seconds=time.perf_counter() - started,
    )


def _cycles(
    groups: Iterable[Sequence[ConvolutionSpec]], trials: Frontend.Trials
) -> dict[str, float] | None:
    """Estimated cycles of all occurrences of convolutions in each layout, summed over all cores."""
    if kind_of(trials.target) != "llvm":
        return None
    info, cycles = target_info(trials.target), {DEFAULT: 0.0, OTHER: 0.0}
    rate = info.flop_per_byte(1.0)
    for group in groups:
        for name, spec in _in_layouts(group[0]).items():
            cost = trials.guessed_cost(spec.task(spec.name, trials.target))
            if cost is None:
                return None
            cycles[name] += cost * _work(group) / rate
    return cycles


def _move_cycles(elements: int, target: str) -> float:
    """Estimated cycles of permutations that move some elements, summed over all cores."""
    info = target_info(target)
    return elements * (TRANSPOSE_CYCLES + 2.0 * FLOAT_BYTES / info.l3_bytes_per_cycle)


def _ratio(seconds: Mapping[str, float]) -> float:
    """The seconds of the slower layout over those of the faster one."""
    return max(seconds.values()) / min(seconds.values())


def _by_shape(specs: Sequence[OperatorSpec]) -> list[list[ConvolutionSpec]]:
    """Groups of convolutions that differ only in their epilogues, those with most work first."""
    groups: dict[ConvolutionSpec, list[ConvolutionSpec]] = defaultdict(list)
    for spec in specs:
        if isinstance(spec, ConvolutionSpec):
            bare = attrs.evolve(
                spec, name="", weight=1, bias=False, residual=False, activation="none"
            )
            groups[bare].append(spec)
    return sorted(groups.values(), key=_work, reverse=True)


def _work(group: Sequence[ConvolutionSpec]) -> float:
    """Floating-point operations of all occurrences of some convolutions."""
    return sum(spec.weight * spec.flop for spec in group)


def _in_layouts(spec: ConvolutionSpec) -> dict[str, ConvolutionSpec]:
    """A convolution of the default layout, and the same convolution in the other layout."""
    other = with_rank(OTHER, spec.rank)
    there = attrs.evolve(spec, name=f"{spec.name}_{OTHER}", layout=other, output_layout=other)
    return {DEFAULT: spec, OTHER: there}


def _seconds(group: Sequence[ConvolutionSpec], trials: Frontend.Trials) -> dict[str, float] | None:
    """Measured seconds of all occurrences in each layout; None unless both layouts have a time."""
    spec, there = _in_layouts(group[0]).values()
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
