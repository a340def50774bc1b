"""Proposes configurations of one task, and lets the search stages learn from measurements.

A round of the search explores, samples and synthesizes configurations, and learns from their times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_system.api import usable_cores

from chameleon_core._loop.round.batch import Config, Programs, Proposal, Search, searched, tuples
from chameleon_core._loop.round.stages import SearchStages, generator
from chameleon_core._measurement import Measurement
from chameleon_core._pipeline.schema import SearchChoice
from chameleon_core._space.design import Configs, DesignSpace
from chameleon_core._stages.search import Archive, Observations, StageContext, Visited
from chameleon_core._task import Task

PLAN_FACTOR = 8
"""Number of candidates asked of the explorer per configuration to measure, so that the sampler can
choose."""

_Origins = dict[Config, Measurement.Origin]

_DRAWS = 8
"""How often random configurations are drawn, if they prove to be known programs."""


class TaskTuner:
    """Proposes configurations of one task and learns from their measurements.

    The same sequence of ``ask`` and ``tell`` gives the same proposals. Nothing in this class
    depends on a clock, or on the order in which measurements arrived.

    Args:
        space: the task's design space.
        stages: the search stages of the task.
        rng: the tuner's own random generator, for the first batch and for filling up batches.
        batch_size: the largest number of configurations per batch.
        plan_size: the number of candidates that the explorer proposes; ``PLAN_FACTOR`` batches if
            None.

    Attributes:
        measurements: all learnt measurements, in proposal order.
        visited: the configurations of ``measurements``, and configurations that turned out to have
            no program, or the program of another configuration.
        best: the fastest measurement, or None if no configuration succeeded. Among equally fast
            measurements, it is the one proposed first.
        best_cost: the time of ``best`` in seconds; infinity if no configuration succeeded.
        rounds: the number of batches that were learnt, guesses included.
        predicted: whether the cost model was trained before the first measurement.
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
        self._append_new = self._programs.append_new
        self.measurements: list[Measurement] = []
        self.rounds = 0
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

    @classmethod
    def of(
        cls,
        search: SearchChoice,
        task: Task,
        space: DesignSpace,
        archive: Archive,
        *,
        batch_size: int,
        device: Mapping[str, Any],
    ) -> TaskTuner:
        """Start the stages of a task's search.

        Args:
            search: the names and options of the stages, such as a resolved pipeline.
            task: the task.
            space: the task's design space.
            archive: the measurements of the run's other tasks, for cost models that learn from
                them.
            batch_size: the number of configurations measured per round.
            device: known properties of the target's device.

        Raises:
            PluginError: a stage fails to start.
        """
        context = StageContext(
            space=space,
            task=task,
            rng=generator(search.seed, task.key, "tuner"),
            batch_size=batch_size,
            threads=len(usable_cores()),
            archive=archive,
            device=device,
        )
        stages, plan_size = SearchStages.of(search, context), search.budget.plan_size
        return cls(space, stages, rng=context.rng, batch_size=batch_size, plan_size=plan_size)

    def suggest(self, config: Config) -> None:
        """Put a configuration into the next batch, in place of another proposal.

        The suggestion that was made last comes first in the batch, and suggestions fill at most
        half of the batch. A suggestion is dropped if it is illegal or already measured.
        """
        self._suggested.insert(0, config)

    def enqueue(self, config: Config) -> None:
        """Put a configuration into the next batch, before all other proposals.

        Enqueued configurations keep their order. If they exceed a batch, the rest waits for the
        next batch. Configurations that are illegal or already measured are dropped.

        Args:
            config: the knob indices of the configuration.
        """
        self._enqueued.append(config)

    def guess(self) -> Proposal:
        """Propose a configuration that needs no search: the last suggestion, or else a first guess.

        First guesses are configurations that the design space recommends. The returned
        configuration does not count as the first batch. The search stages learn its measurement
        together with the first batch, so it takes only the time of one measurement.

        Returns:
            A proposal of one configuration, or of none if all first guesses are measured.
        """
        self._expect_nothing()
        guesses = self.guesses[:1]
        self._guessing = bool(len(guesses))
        self._asked = guesses if len(guesses) else None
        origins = {
            config: Measurement.Origin.SUGGESTION
            if config in self._suggested
            else Measurement.Origin.INITIAL
            for config in tuples(guesses)
        }
        return Proposal(configs=guesses, origins=origins)

    @property
    def guesses(self) -> Configs:
        """The space's recommended configurations that ``guess`` has not returned yet, best first.

        The array has shape (n, knobs).
        """
        suggested = np.array(self._suggested, np.int32).reshape(-1, len(self.space.knobs))
        return self._append_new(
            self._append_new(suggested[:0], suggested), self.space.first_guesses
        )

    def recommended(self, otherwise: int = 0) -> Configs:
        """Configurations to use without measurements, most promising first, shape (n, knobs).

        If the cost model was trained beforehand and nothing is measured, the explorer's candidates
        come first, then the space's first guesses. Otherwise only the first guesses are returned.

        Args:
            otherwise: the number of random configurations to return if there are no others.
        """
        guesses = self.space.first_guesses
        if self.predicted and not self.measurements:
            candidates = self.stages.explore(self.visited, self._batch_size)
            candidates = self.stages.selected_batch_first(candidates, 1)
            chosen = self._append_new(guesses[:0], candidates.configs, self._batch_size)
            guesses = np.concatenate([chosen, guesses]).astype(np.int32)
        guesses = self.space.distinct(guesses)
        return guesses if len(guesses) else self._top_up(guesses, otherwise)

    def _expect_nothing(self) -> None:
        if self._asked is not None:
            raise RuntimeError("tell the measurements of the last batch before asking again")

    def ask(self, limit: int | None = None) -> Proposal:
        """Propose the next batch: distinct, legal and new rows; none if the space is exhausted.

        The first batch holds the space's first guesses and random configurations. If the cost model
        already learned from other tasks, the first batch holds a single first guess, the best one.
        The other rows then come from explorer, sampler and synthesizer, as in later batches. A
        sampler may return few rows. Random rows replace only unusable rows, and rows that are
        missing because the explorer found too few candidates.

        Args:
            limit: the largest number of rows that the budget allows, or None for no limit.
        """
        self._expect_nothing()
        if self._unlearnt:
            self.stages.learn(Observations.of(self.space, self.measurements))
            self._unlearnt = False
        if self._batches == 0 and self.stages.score is None:
            guesses = self.space.first_guesses
            batch = guesses[self.visited.unvisited(guesses)][: self._batch_size]
            found, wanted = Proposal(configs=batch), self._batch_size
            added = Measurement.Origin.INITIAL
        else:
            (found, wanted), added = self._search(), Measurement.Origin.FALLBACK
        batch, origins = found.configs, dict(found.origins)
        if self._batches == 0 and self.stages.score is not None and not self.measurements:
            batch = self._with_first_guess(batch, origins)
        batch = self._top_up(batch, wanted)
        for config in tuples(batch):
            origins.setdefault(config, added)
        batch = self._with_enqueued(self._with_suggestions(batch, origins), origins, limit)
        rows = tuples(batch)
        self._asked = batch if len(batch) else None
        return Proposal(
            configs=batch,
            origins={row: origins[row] for row in rows},
            scores={row: found.scores[row] for row in rows if row in found.scores},
            search=found.search,
        )

    def _search(self) -> tuple[Proposal, int]:
        """The proposal of explorer, sampler and synthesizer, and the rows that the batch needs."""
        scores: dict[Config, float] = {}
        candidates = self.stages.explore(self.visited, self._plan_size)
        guided = self.stages.score is not None and len(candidates.scores)
        if guided:
            # The configurations and scores still have the same order at this point.
            scored = zip(tuples(candidates.configs), candidates.scores.tolist(), strict=True)
            scores = dict(scored)
        candidates = self.stages.selected_batch_first(candidates, self._batch_size)
        few = len(candidates.configs) < self._batch_size
        search = Search(
            steps=candidates.steps,
            converged=candidates.steps if candidates.converged is None else candidates.converged,
            score=float(candidates.scores.max()) if guided else None,
            short=str(self.stages.contracts["explorers"]) if few else None,
        )
        if not len(candidates.configs):
            return Proposal(configs=candidates.configs, search=search), self._batch_size
        selected = self.stages.select(candidates, self.visited, self._batch_size)
        batch = self.stages.refine(selected, candidates, self.visited)
        origins = searched(
            tuples(batch), candidates=tuples(candidates.configs), selected=tuples(selected)
        )
        proposed = len(batch)
        # Further candidates replace rows that are the same program as another row, or no program.
        batch = self._append_new(batch[:0], batch, proposed)
        batch = self._append_new(batch, candidates.configs, proposed)
        for config in tuples(batch):
            asked = self._programs.asked.get(config, config)
            origins.setdefault(config, origins.get(asked, Measurement.Origin.EXPLORER))
            if asked in scores:
                scores.setdefault(config, scores[asked])
        if not few and (proposed < len(selected) or not len(selected)):
            search = attrs.evolve(search, short=str(self.stages.contracts["samplers"]))
        proposal = Proposal(configs=batch, origins=origins, scores=scores, search=search)
        return proposal, self._batch_size if few or not len(selected) else len(selected)

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Learn the measurements of the batch that was proposed last; their order does not matter.

        A configuration of the batch that was not measured may be proposed again.

        Args:
            measurements: the measurements.

        Raises:
            ValueError: a measurement is not of the last batch, or the same configuration occurs
                twice.
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
        """Add a batch of measurements that another run has made.

        The search stages learn from these measurements when ``ask`` is called next.

        Args:
            measurements: the measurements.
        """
        self._note(measurements)
        self._unlearnt = True
        self.rounds += 1

    def adopt(self, measurements: Sequence[Measurement]) -> None:
        """Learn measurements of configurations that this tuner did not propose."""
        self._learn(measurements)

    def _learn(self, measurements: Sequence[Measurement]) -> None:
        if measurements:
            self._note(measurements)
            self.stages.learn(Observations.of(self.space, self.measurements))

    def _note(self, measurements: Sequence[Measurement]) -> None:
        """Keep measurements, without letting the search stages learn from them."""
        if not measurements:
            return
        self.measurements.extend(measurements)
        for measurement in measurements:
            cost = measurement.cost
            if cost < self.best_cost:
                self.best, self.best_cost = measurement, cost
        self.visited.add(np.array([m.config for m in measurements], np.int32))

    def _with_suggestions(self, batch: Configs, origins: _Origins) -> Configs:
        """The batch with suggestions in front, and with the same number of rows."""
        if not self._suggested or not len(batch):
            return batch
        suggested = self._append_new(batch[:0], np.array(self._suggested, np.int32))
        self._suggested.clear()
        suggested = suggested[: (len(batch) + 1) // 2]
        origins |= dict.fromkeys(tuples(suggested), Measurement.Origin.SUGGESTION)
        return self._append_new(suggested, batch)[: len(batch)]

    def _with_first_guess(self, batch: Configs, origins: _Origins) -> Configs:
        """The batch with the space's best first guess in place of its last row.

        A model that learned from other tasks may be wrong about this task. With the guess, the
        result is not worse than it would be without a model.
        """
        guess = self._append_new(batch[:0], self.space.first_guesses[:1])
        if len(batch) < 2 or not len(guess):  # noqa: PLR2004 - leave a single row to the model
            return batch
        extended = self._append_new(guess, batch)[: len(batch)]
        origins.setdefault(tuples(guess)[0], Measurement.Origin.INITIAL)
        return extended

    def _with_enqueued(self, batch: Configs, origins: _Origins, limit: int | None) -> Configs:
        """At most ``limit`` rows: the enqueued ones, then the batch's, except its last rows."""
        if not self._enqueued:
            return batch[:limit]
        waiting = self._append_new(batch[:0], np.array(self._enqueued, np.int32))
        first = waiting[: self._batch_size][:limit]
        self._enqueued = tuples(waiting[len(first) :])
        origins |= dict.fromkeys(tuples(first), Measurement.Origin.SUGGESTION)
        return self._append_new(first, batch)[: max(len(first), len(batch))][:limit]

    def _top_up(self, batch: Configs, wanted: int) -> Configs:
        """The batch, filled with first guesses and random configurations up to ``wanted`` rows."""
        if len(batch) >= wanted:
            return batch
        # First guesses that did not fit into the first batch come before random configurations.
        batch = self._append_new(batch, self.space.first_guesses, wanted)
        for _ in range(_DRAWS):
            before = len(self.visited)
            # Draw one batch more than needed, so that visited rows seldom leave the batch short. In
            # a small space, this draws all configurations.
            draw = min(self.space.size, 2 * wanted + before)
            batch = self._append_new(batch, self.space.sample(draw, self._rng), wanted)
            # Draw again if some rows proved to be other programs, which count as visited now.
            if len(batch) == wanted or len(self.visited) == before:
                break
        if len(batch) < wanted and self.measurements:
            # Random sampling may miss rare legal configurations; neighbours of known ones are legal
            # more often.
            known = np.array([m.config for m in self.measurements], np.int32)
            near = self.space.mutate(np.repeat(known, 8, axis=0)[: 64 * wanted], self._rng)
            batch = self._append_new(batch, near, wanted)
        return batch[:wanted]
