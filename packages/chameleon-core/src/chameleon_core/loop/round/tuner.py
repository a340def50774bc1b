"""Ask and tell for one task (figure 3 of the paper: explore, sample, synthesize, learn)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from chameleon_core.loop.round.batch import Config, Origin, Programs, Search, searched, tuples
from chameleon_core.loop.round.stages import SearchStages
from chameleon_core.measurement import Measurement
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Observations, Visited

PLAN_FACTOR = 8
"""Candidates asked of the explorer per configuration to be measured: room for the sampler."""

_DRAWS = 8
"""How often random configurations are drawn while they turn out to be programs already known."""


class TaskTuner:
    """Proposes configurations of one task and learns from their measurements.

    The same sequence of ``ask`` and ``tell`` gives the same proposals: nothing here depends on
    a clock or on the order in which measurements arrived.

    Args:
        space: the task's design space.
        stages: its search stages.
        rng: the tuner's own generator, for the first batch and for topping batches up.
        batch_size: configurations per batch at most.
        plan_size: candidates asked of the explorer; ``PLAN_FACTOR`` batches by default.

    Attributes:
        measurements: everything learnt, in proposal order.
        visited: the same as identities, and what turned out to be another program or none.
        best: the fastest of them, the earliest proposed of equals; None where none succeeded.
        best_cost: its cost in seconds; infinity where there is none.
        rounds: batches told, guesses among them.
        origins: where each configuration of the last batch, or guess, came from.
        scores: what a trained cost model said of those of them that the explorer found.
        search: how the last batch was searched for.
        predicted: whether the cost model knew something before the first measurement.
    """

    def __init__(
        self,
        space: DesignSpace,
        stages: SearchStages,
        *,
        rng: np.random.Generator,
        batch_size: int,
        plan_size: int | None = None,
    ) -> None:
        self.space = space
        self.stages = stages
        self.visited = Visited(space)
        self._programs = Programs(space, self.visited, at_once=batch_size)
        self._joined = self._programs.joined
        self.measurements: list[Measurement] = []
        self.rounds = 0
        self.origins: dict[Config, Origin] = {}
        self.scores: dict[Config, float] = {}
        self.search = Search()
        self.best: Measurement | None = None
        self.best_cost = math.inf
        self._rng = rng
        self._batch_size = batch_size
        self._plan_size = plan_size or PLAN_FACTOR * batch_size
        self._asked: Configs | None = None
        self._suggested: list[Config] = []
        self._enqueued: list[Config] = []
        self._batches = 0
        self._guessing = False
        self._unlearnt = False
        self.predicted = stages.score is not None

    def suggest(self, config: Config) -> None:
        """Put a configuration into the next batch, in place of another proposal.

        The last suggestion comes first, and suggestions fill at most half of the batch. A
        suggestion is dropped if it is illegal or already measured.
        """
        self._suggested.insert(0, config)

    def enqueue(self, config: Config) -> None:
        """Measure a configuration with the next batch, before all else.

        They come in the order in which they were enqueued, as many as a batch holds; the others
        wait for the batch after it. Those that are no legal configurations of the space, or were
        measured, are forgotten.
        """
        self._enqueued.append(config)

    def guess(self) -> Configs:
        """One configuration that needs no search: the last suggestion, or else a first guess.

        The guess is no batch: the first batch is still to come, and the search stages learn from
        the guess together with it. So a guess costs no more than its measurement.

        Returns:
            Shape (1, knobs), or (0, knobs) if all first guesses are measured.
        """
        self._expect_nothing()
        guesses = self.guesses[:1]
        self._guessing = bool(len(guesses))
        self._asked = guesses if len(guesses) else None
        self.scores = {}
        self.origins = {
            config: Origin.SUGGESTION if config in self._suggested else Origin.INITIAL
            for config in tuples(guesses)
        }
        return guesses

    @property
    def guesses(self) -> Configs:
        """The configurations that ``guess`` has yet to return, in order, shape (n, knobs)."""
        suggested = np.array(self._suggested, np.int32).reshape(-1, len(self.space.knobs))
        return self._joined(self._joined(suggested[:0], suggested), self.space.first_guesses)

    def recommended(self) -> Configs:
        """Configurations to use without measurements, the most promising first, shape (n, knobs).

        The explorer's candidates come first if the cost model knows something, then the first
        guesses.
        """
        guesses = self.space.first_guesses
        if self.predicted and not self.measurements:
            candidates = self.stages.explore(self.visited, self._batch_size)
            candidates = self.stages.selected_batch_first(candidates, 1)
            chosen = self._joined(guesses[:0], candidates.configs, self._batch_size)
            guesses = np.concatenate([chosen, guesses]).astype(np.int32)
        return self.space.distinct(guesses)

    def _expect_nothing(self) -> None:
        if self._asked is not None:
            raise RuntimeError("tell the measurements of the last batch before asking again")

    def ask(self, limit: int | None = None) -> Configs:
        """The next batch: distinct, legal and new rows; empty if the space is exhausted.

        The first batch holds the space's first guesses and random configurations. If the cost model
        already learned from other tasks, the first batch holds only the best guesses. Its other
        rows then come from explorer, sampler and synthesizer, as in later batches. A sampler may
        return few rows. Random rows replace only unusable rows, and rows that a short plan could
        not supply.

        Args:
            limit: the largest number of rows that the budget allows.

        Returns:
            Shape (n, knobs).
        """
        self._expect_nothing()
        if self._unlearnt:
            self.stages.learn(Observations.of(self.space, self.measurements))
            self._unlearnt = False
        self.origins, self.scores, self.search = {}, {}, Search()
        if self._batches == 0 and self.stages.score is None:
            guesses = self.space.first_guesses
            batch = guesses[self.visited.fresh(guesses)][: self._batch_size]
            wanted, added = self._batch_size, Origin.INITIAL
        else:
            (batch, wanted), added = self._search(), Origin.FALLBACK
            if self._batches == 0 and not self.measurements:
                batch = self._with_first_guess(batch)
        batch = self._top_up(batch, wanted)
        for config in tuples(batch):
            self.origins.setdefault(config, added)
        batch = self._with_enqueued(self._with_suggestions(batch), limit)
        self.origins = {config: self.origins[config] for config in tuples(batch)}
        self.scores = {row: self.scores[row] for row in self.origins if row in self.scores}
        self._asked = batch if len(batch) else None
        return batch

    def _search(self) -> tuple[Configs, int]:
        candidates = self.stages.explore(self.visited, self._plan_size)
        guided = self.stages.score is not None and len(candidates.scores)
        if guided:
            # Before their order changes, which the scores' does not.
            scored = zip(tuples(candidates.configs), candidates.scores.tolist(), strict=True)
            self.scores = dict(scored)
        candidates = self.stages.selected_batch_first(candidates, self._batch_size)
        few = len(candidates.configs) < self._batch_size
        self.search = Search(
            steps=candidates.steps,
            converged=candidates.steps if candidates.converged is None else candidates.converged,
            score=float(candidates.scores.max()) if guided else None,
            short=str(self.stages.contracts["explorers"]) if few else None,
        )
        if not len(candidates.configs):
            return candidates.configs, self._batch_size
        selected = self.stages.select(candidates, self.visited, self._batch_size)
        batch = self.stages.refine(selected, candidates, self.visited)
        self.origins = searched(
            tuples(batch), candidates=tuples(candidates.configs), selected=tuples(selected)
        )
        proposed = len(batch)
        # Those that are the same program as another, or none, give way to further candidates.
        batch = self._joined(batch[:0], batch, proposed)
        batch = self._joined(batch, candidates.configs, proposed)
        for config in tuples(batch):
            asked = self._programs.asked.get(config, config)
            self.origins.setdefault(config, self.origins.get(asked, Origin.EXPLORER))
            if asked in self.scores:
                self.scores.setdefault(config, self.scores[asked])
        if not few and (proposed < len(selected) or not len(selected)):
            self.search = attrs.evolve(self.search, short=str(self.stages.contracts["samplers"]))
        return batch, self._batch_size if few or not len(selected) else len(selected)

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Learn the outcomes of the last batch, given in any order.

        Configurations of the batch that were not measured may be proposed again.

        Raises:
            ValueError: a measurement is not of the last batch, or one is there twice.
        """
        asked = [] if self._asked is None else tuples(self._asked)
        measured = {measurement.config: measurement for measurement in measurements}
        if len(measured) < len(measurements) or not measured.keys() <= set(asked):
            raise ValueError("these measurements are not those of the last batch")
        self._asked = None
        self.rounds += 1
        # Proposal order, not arrival order: arrival depends on the clock.
        known = [measured[config] for config in asked if config in measured]
        if self._guessing:
            self._guessing = False
            self._note(known)
        else:
            self._batches += 1
            self._learn(known)

    def recall(self, measurements: Sequence[Measurement]) -> None:
        """Note a batch of another run's; the search stages learn of it if there is a next one."""
        self._note(measurements)
        self._unlearnt = True
        self.rounds += 1

    def adopt(self, measurements: Sequence[Measurement]) -> None:
        """Learn measurements of configurations that were never asked for (an older run's)."""
        self._learn(measurements)

    def _learn(self, measurements: Sequence[Measurement]) -> None:
        if measurements:
            self._note(measurements)
            self.stages.learn(Observations.of(self.space, self.measurements))

    def _note(self, measurements: Sequence[Measurement]) -> None:
        """Keep measurements without having the search stages learn them."""
        if not measurements:
            return
        self.measurements.extend(measurements)
        for measurement in measurements:
            cost = measurement.cost
            if cost < self.best_cost:
                self.best, self.best_cost = measurement, cost
        self.visited.add(np.array([m.config for m in measurements], np.int32))

    def _with_suggestions(self, batch: Configs) -> Configs:
        """The batch with what was suggested first, and no longer than it was."""
        if not self._suggested or not len(batch):
            return batch
        suggested = self._joined(batch[:0], np.array(self._suggested, np.int32))
        self._suggested.clear()
        suggested = suggested[: (len(batch) + 1) // 2]
        self.origins |= dict.fromkeys(tuples(suggested), Origin.SUGGESTION)
        return self._joined(suggested, batch)[: len(batch)]

    def _with_first_guess(self, batch: Configs) -> Configs:
        """The batch with the space's best guess in it, in the place of its last row.

        What a model has learnt from other tasks may be wrong about this one: what it chooses is to
        be no worse than what needs no model.
        """
        guess = self._joined(batch[:0], self.space.first_guesses[:1])
        if len(batch) < 2 or not len(guess):  # noqa: PLR2004 - a single one is the model's
            return batch
        joined = self._joined(guess, batch)[: len(batch)]
        self.origins.setdefault(tuples(guess)[0], Origin.INITIAL)
        return joined

    def _with_enqueued(self, batch: Configs, limit: int | None) -> Configs:
        """At most ``limit`` rows: what was enqueued, then the batch, which gets no longer by it."""
        if not self._enqueued:
            return batch[:limit]
        waiting = self._joined(batch[:0], np.array(self._enqueued, np.int32))
        first = waiting[: self._batch_size][:limit]
        self._enqueued = tuples(waiting[len(first) :])
        self.origins |= dict.fromkeys(tuples(first), Origin.SUGGESTION)
        return self._joined(first, batch)[: max(len(first), len(batch))][:limit]

    def _top_up(self, batch: Configs, wanted: int) -> Configs:
        """The batch, filled with first guesses and random configurations up to ``wanted`` rows."""
        if len(batch) >= wanted:
            return batch
        # What the space itself recommends and did not fit into the first batch comes before.
        batch = self._joined(batch, self.space.first_guesses, wanted)
        for _ in range(_DRAWS):
            before = len(self.visited)
            # One batch more than needed, so that rows already visited seldom leave it short; where
            # the space is small this asks for all of it.
            draw = min(self.space.size, 2 * wanted + before)
            batch = self._joined(batch, self.space.sample(draw, self._rng), wanted)
            # Again if some of them turned out to be other programs, which are visited now.
            if len(batch) == wanted or len(self.visited) == before:
                break
        if len(batch) < wanted and self.measurements:
            # Legal configurations may be too rare to be met at random; those near known ones
            # are met more often.
            known = np.array([m.config for m in self.measurements], np.int32)
            near = self.space.mutate(np.repeat(known, 8, axis=0)[: 64 * wanted], self._rng)
            batch = self._joined(batch, near, wanted)
        return batch[:wanted]
