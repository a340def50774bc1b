"""The rounds of an ask-and-tell search: those of a run, measured by somebody else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from chameleon_core.api.ask_store import AskStore
from chameleon_core.api.measurements import other_quantities
from chameleon_core.loop.round.batch import Batch, Config
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.measurement import Measurement

Told = Mapping[str, Sequence[tuple[Config, float]]]
"""Further quantities of a batch, by name."""


class Rounds:
    """Has a task proposed to, answers from the store what it knows, and keeps how it was asked.

    A search is replayed as it was asked: each round is kept with its limit and with what was
    enqueued for it, so that a search goes on where it was whatever its program does next.

    Args:
        run: the task.
        store: keeps the rounds, beside the records of the task.

    Attributes:
        other: further quantities that were told, by configuration and name.
    """

    def __init__(self, run: TaskRun, store: AskStore) -> None:
        self._run = run
        self._store = store
        self._task_id = run.records.stored.id
        self._batch = Batch((), stored={}, origins={})
        self._limit = 0
        self._waiting: list[Config] = []
        self._enqueued: list[Config] = []
        self.other = other_quantities(store.records, self._task_id)
        self._replay()

    @property
    def missing(self) -> tuple[Config, ...]:
        """What of the batch has no outcome yet."""
        return self._batch.missing

    def enqueue(self, config: Config) -> None:
        """See ``TaskTuner.enqueue``."""
        self._waiting.append(config)
        self._run.tuner.enqueue(config)

    def ask(self, limit: int) -> Batch:
        """The next batch of which something is missing; without configurations at the end."""
        self._enqueued, self._waiting = self._waiting, []
        while True:
            began = time.perf_counter()
            batch = self._run.propose(limit)
            seconds = time.perf_counter() - began
            if not batch.configs:
                return batch
            self._batch, self._limit = batch, limit
            self._run.begin(batch, seconds)
            if batch.missing:
                batch.submit(time.perf_counter())
                return batch
            self.learn({})

    def save(self, measurement: Measurement) -> None:
        """Keep the outcome of one configuration of the batch."""
        before = self._batch.seconds
        self._batch.arrive(measurement, time.perf_counter())
        self._run.save(measurement, self._batch, self._batch.seconds - before)

    def learn(self, other: Told) -> None:
        """Learn the batch, all of which is known now, and keep the round."""
        began = time.perf_counter()
        self._run.learn(self._batch)
        learn_seconds = time.perf_counter() - began
        self._store.add_round(
            self._task_id,
            {
                "limit": self._limit,
                "enqueued": self._enqueued,
                "told": self._batch.configs,
                "other": dict(other),
            },
        )
        self._enqueued = []
        for name, told in other.items():
            for config, value in told:
                self.other.setdefault(config, {})[name] = value
        if self._batch.submitted:
            self._run.announce(self._batch, limit=None, learn_seconds=learn_seconds)

    def _replay(self) -> None:
        """Come to where an earlier process was: ask as it did, and answer from the store."""
        rounds = self._store.rounds(self._task_id)
        for asked in rounds:
            for config in asked["enqueued"]:
                self._run.tuner.enqueue(tuple(config))
            batch = self._run.propose(asked["limit"])
            if not batch.configs:
                break
            self._run.begin(batch, 0.0)
            self._run.learn(batch)
            if batch.missing:  # another version of a stage, say, proposes otherwise
                break
        # Outcomes of a batch that was not told to its end answer the next ask.
        told = {tuple(config) for asked in rounds for config in asked["told"]}
        records = self._run.records
        left = records.leftovers(records.measured.keys() - told, ended=None)
        if left:
            self._run.tuner.adopt(left)


__all__ = ["Rounds", "Told"]
