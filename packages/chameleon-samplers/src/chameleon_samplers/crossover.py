"""The synthesizer ``crossover``, which combines the fastest measured configurations."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, Observations, StageContext, Synthesizer, Visited

from chameleon_samplers.options import CrossoverOptions
from chameleon_samplers.replacement import joined, kept_rows, measurable


class CrossoverSynthesizer(Synthesizer):
    """Replaces a part of each batch by children of the fastest measured configurations.

    A child takes the value of every knob from one of two parents, each with equal probability.
    """

    def __init__(self, options: CrossoverOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._parents: Configs = np.empty((0, len(context.space.knobs)), np.int32)

    def observe(self, observations: Observations) -> None:
        """Keep the fastest measured configurations as parents."""
        self._parents = observations.fastest[: self._options.parents]

    def refine(
        self,
        batch: Configs,
        candidates: Candidates,  # noqa: ARG002 - part of the contract
        visited: Visited,
    ) -> Configs:
        usable = measurable(self._space, batch, visited)
        share = self._options.share if len(self._parents) > 1 else 0.0
        old = kept_rows(batch, usable, share)
        children = self._children(len(batch) - len(old))
        children = measurable(self._space, children, visited)
        children = self._space.distinct(np.concatenate([old, children]))[len(old) : len(batch)]
        return joined(self._space, old, children, usable, len(batch))

    def _children(self, wanted: int) -> Configs:
        """Children, shape (n, knobs): more than wanted, since many are illegal or measured."""
        parents = self._parents
        if not wanted or len(parents) < 2:  # noqa: PLR2004 - a mother and a father
            return parents[:0]
        count = self._options.tries * wanted
        mothers, fathers = self._rng.integers(0, len(parents), (2, count))
        from_mother = self._rng.random((count, parents.shape[1])) < 0.5  # noqa: PLR2004 - even
        children = np.where(from_mother, parents[mothers], parents[fathers])
        return self._space.canonical(children.astype(np.int32))
