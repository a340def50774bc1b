"""Synthesizers by mode (sample synthesis), by crossover, or without any change."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    DesignSpace,
    NoOptions,
    Observations,
    StageContext,
    Synthesizer,
    Visited,
)
from numpy.typing import NDArray

from chameleon_samplers._options import CrossoverOptions, ModeOptions


def measurable(space: DesignSpace, batch: Configs, visited: Visited) -> Configs:
    """The legal, unvisited and distinct configurations of a batch, shape (n, knobs)."""
    batch = space.distinct(batch[space.legal(batch)])
    return batch[visited.unvisited(batch)]


def rows_to_keep(batch: Configs, usable: Configs, share: float) -> Configs:
    """The configurations of a batch that the synthesizer does not replace.

    Configurations that cannot be measured are replaced first, then the last usable ones; at least
    one usable configuration stays.
    """
    replaced = max(round(share * len(batch)), len(batch) - len(usable))
    return usable[: max(len(batch) - replaced, min(1, len(usable)))]


def combine_batch(
    space: DesignSpace, kept: Configs, new: Configs, usable: Configs, size: int
) -> Configs:
    """The batch of a synthesizer: kept configurations, new ones, then other usable ones."""
    rows = np.concatenate([kept, new.reshape(-1, kept.shape[1]), usable])
    return space.distinct(rows.astype(np.int32))[:size]


class NoSynthesizer(Synthesizer):
    """Keeps the sampler's batch, without duplicates, illegal and measured configurations."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._space = context.space

    def refine(
        self,
        batch: Configs,
        candidates: Candidates,  # noqa: ARG002 - the contract of stages has it
        visited: Visited,
    ) -> Configs:
        return measurable(self._space, batch, visited)


class CrossoverSynthesizer(Synthesizer):
    """Replaces a part of each batch by uniform crossover of the fastest measured configurations."""

    def __init__(self, options: CrossoverOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._parents: Configs = np.empty((0, len(context.space.knobs)), np.int32)

    def observe(self, observations: Observations) -> None:
        self._parents = observations.fastest[: self._options.parents]

    def refine(
        self,
        batch: Configs,
        candidates: Candidates,  # noqa: ARG002 - the contract of stages has it
        visited: Visited,
    ) -> Configs:
        usable = measurable(self._space, batch, visited)
        share = self._options.share if len(self._parents) > 1 else 0.0
        kept = rows_to_keep(batch, usable, share)
        children = self._children(len(batch) - len(kept))
        children = measurable(self._space, children, visited)
        children = self._space.distinct(np.concatenate([kept, children]))[len(kept) : len(batch)]
        return combine_batch(self._space, kept, children, usable, len(batch))

    def _children(self, wanted: int) -> Configs:
        """Children, shape (n, knobs): more than wanted, since many are illegal or measured."""
        parents = self._parents
        if not wanted or len(parents) < 2:  # noqa: PLR2004 - a child has two parents
            return parents[:0]
        count = self._options.tries * wanted
        mothers, fathers = self._rng.integers(0, len(parents), (2, count))
        from_mother = self._rng.random((count, parents.shape[1])) < 0.5  # noqa: PLR2004 - even odds
        children = np.where(from_mother, parents[mothers], parents[fathers])
        return self._space.canonical(children.astype(np.int32))


_CHUNK = 64
"""The number of combinations that are checked at a time."""


class ModeSynthesizer(Synthesizer):
    """Replaces configurations that cannot be measured by combinations of frequent knob values.

    The paper uses only the combination of the most frequent values (Ahn et al., "Chameleon", 2020,
    section 3.3 and line 9 of Algorithm 1). If it is illegal or visited, the next ones are tried.
    """

    def __init__(self, options: ModeOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        # How often each choice of each knob was measured, and how often that failed.
        self._successes = [np.zeros(c, np.int64) for c in context.space.cardinalities.tolist()]
        self._failures = [counts.copy() for counts in self._successes]

    def observe(self, observations: Observations) -> None:
        working = np.isfinite(observations.costs)
        for column, cardinality in enumerate(self._space.cardinalities.tolist()):
            chosen = observations.configs[:, column]
            self._successes[column] = np.bincount(chosen[working], minlength=cardinality)
            self._failures[column] = np.bincount(chosen[~working], minlength=cardinality)

    def refine(self, batch: Configs, candidates: Candidates, visited: Visited) -> Configs:
        usable = measurable(self._space, batch, visited)
        chosen = rows_to_keep(batch, usable, self._options.share)
        missing = len(batch) - len(chosen)
        if not missing:
            return chosen
        new = self._frequent(candidates.configs, chosen, visited, missing)
        return combine_batch(self._space, chosen, new, usable, len(batch))

    def _frequent(
        self, candidates: Configs, chosen: Configs, visited: Visited, wanted: int
    ) -> Configs:
        """The most frequent combinations that can be measured and are not in ``chosen``."""
        refined = chosen
        tables = [
            self._preference(column, candidates[:, column]) for column in range(chosen.shape[1])
        ]
        combinations = _by_frequency(tables)
        for _ in range(-(-self._options.tries // _CHUNK)):
            chunk = [row for row, _ in zip(combinations, range(_CHUNK), strict=False)]
            if not chunk:
                break
            rows = self._space.canonical(np.array(chunk, np.int32))
            new = measurable(self._space, rows, visited)
            refined = self._space.distinct(np.concatenate([refined, new]))
            if len(refined) >= len(chosen) + wanted:
                break
        return refined[len(chosen) : len(chosen) + wanted]

    def _preference(self, column: int, chosen: NDArray[np.int32]) -> NDArray[np.float64]:
        """The log frequency of each value of a knob among the candidates, shape (cardinality,)."""
        counts = np.bincount(chosen, minlength=len(self._successes[column])).astype(np.float64)
        # Values whose measurements all failed count as if no candidate had them.
        counts[(self._failures[column] > 0) & (self._successes[column] == 0)] = 0.0
        # Counts start at one, so that choices that no candidate has can be combined as well.
        share: NDArray[np.float64] = np.log(counts + 0.5) - np.log(counts.sum() + 1.0)
        return share


def _by_frequency(tables: list[NDArray[np.float64]]) -> Iterator[tuple[int, ...]]:
    """All combinations of knob values, the largest sum of preferences first."""
    orders = [np.argsort(-table, kind="stable") for table in tables]
    sorted_tables = [table[order].tolist() for table, order in zip(tables, orders, strict=True)]
    choices = [order.tolist() for order in orders]
    # Successors change the last changed knob or a later one, so no combination comes twice.
    start = (0,) * len(tables)
    queue = [(-sum(table[0] for table in sorted_tables), start, 0)]
    while queue:
        cost, ranks, last_changed = heapq.heappop(queue)
        yield tuple(choice[rank] for choice, rank in zip(choices, ranks, strict=True))
        for column in range(last_changed, len(ranks)):
            rank = ranks[column] + 1
            if rank < len(choices[column]):
                table = sorted_tables[column]
                successor = (*ranks[:column], rank, *ranks[column + 1 :])
                heapq.heappush(queue, (cost + table[rank - 1] - table[rank], successor, column))
