"""Merges the sampling instructions of all sketches into the knobs of one design space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Factorization, Knob
from numpy.typing import NDArray

from chameleon_tvm._spaces.sketch.replay import SamplingInstruction

SKETCH = "sketch"
INLINE, ROOT = -2, -1


@attrs.frozen(kw_only=True)
class ThinnedFactorization(Factorization):
    """A factorization knob that keeps at most ``most`` choices, evenly spread."""

    most: int
    innermost_multiple: int = 1

    @cached_property
    def _kept(self) -> NDArray[np.int64]:
        table: NDArray[np.int64] = super().values
        table = table[table[:, -1] % self.innermost_multiple == 0]
        if len(table) <= self.most:
            return table
        return table[np.linspace(0, len(table) - 1, self.most).round().astype(np.int64)]

    @property
    def values(self) -> NDArray[np.int64]:
        return self._kept


@attrs.frozen(kw_only=True, eq=False)
class Decision:
    """The choice at a sampling instruction of a sketch; ``knob`` is None if there is no choice."""

    sample: SamplingInstruction
    knob: str | None

    @property
    def name(self) -> str:
        """The name of this decision, such as ``tile_h``: that of its knob, if it has one."""
        return self.knob or self.sample.subject

    def of(self, config: Mapping[str, Any]) -> Any:
        """The decision of a configuration as TVM's trace stores it: tile sizes, or an index."""
        if self.knob is None:
            return self.sample.decision
        chosen = config[self.knob]
        if self.sample.kind == "SamplePerfectTile":
            return [int(factor) for factor in chosen]
        if self.sample.kind == "SampleCategorical":
            return _candidates(self.sample).index(chosen)
        return int(chosen)


def merge(
    sketches: Sequence[Sequence[SamplingInstruction]], *, max_choices: int
) -> tuple[list[Knob], list[list[Decision]]]:
    """Make knobs for the samples of all sketches; equal choices of several sketches share a knob.

    Returns:
        The knobs, the first of which is ``sketch``, and each sketch's decisions in trace order.
    """
    entries: dict[str, tuple[Knob, list[int]]] = {}
    decisions: list[list[Decision]] = []
    for number, samples in enumerate(sketches):
        decisions.append([])
        for sample in samples:
            name = sample.subject
            knob = _knob(name, sample, max_choices)
            if name in entries and entries[name][0] != knob:
                name = f"{name}_sketch{number}"
                knob = _knob(name, sample, max_choices)
            if knob is None:
                decisions[-1].append(Decision(sample=sample, knob=None))
                continue
            entries.setdefault(name, (knob, []))[1].append(number)
            decisions[-1].append(Decision(sample=sample, knob=name))
    knobs: list[Knob] = [Choice(name=SKETCH, options=tuple(range(len(sketches))))]
    for knob, numbers in entries.values():
        everywhere = len(numbers) == len(sketches)
        knobs.append(knob if everywhere else attrs.evolve(knob, when=(SKETCH, tuple(numbers))))
    return knobs, decisions


def _knob(name: str, sample: SamplingInstruction, max_choices: int) -> Knob | None:
    """The knob of a sample, or None if the sample has only one choice."""
    if sample.kind == "SamplePerfectTile":
        parts, innermost = (int(value) for value in sample.instruction.attrs[:2])
        if sample.extent == 1:
            return None
        return ThinnedFactorization(
            name=name, extent=sample.extent, parts=parts, max_innermost=innermost, most=max_choices
        )
    if sample.kind == "SampleCategorical":
        candidates = _candidates(sample)
        return Choice(name=name, options=candidates) if len(candidates) > 1 else None
    if sample.kind == "SampleComputeLocation":
        return Choice(name=name, options=(INLINE, ROOT, *range(sample.loops)))
    return None


def _candidates(sample: SamplingInstruction) -> tuple[int, ...]:
    """The candidates of a categorical sample; their positions if two candidates are equal."""
    values = tuple(int(value) for value in sample.instruction.attrs[0])
    return values if len(set(values)) == len(values) else tuple(range(len(values)))
