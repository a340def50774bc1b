"""Stores the batches that ``Tuner.ask`` returns, and the results that ``Tuner.tell`` gets."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chameleon_core._api.measurements import ASKED, other_quantities, rounds
from chameleon_core._errors import RunFolderError
from chameleon_core._loop.round.batch import Batch, Config, Proposal
from chameleon_core._loop.round.task_run import TaskRun
from chameleon_core._measurement import Measurement
from chameleon_core._pipeline.nodes import expanded
from chameleon_core._pipeline.schema import SearchChoice
from chameleon_core._run_folder import RunFolder
from chameleon_core._store.records import RecordStore

_SEARCH = "ask_and_tell"
"""Key under which a store keeps the stages and options of its search."""


class AskStore:
    """Keeps the measurements that a user of ``Tuner`` reports, in a run folder or in memory.

    Args:
        folder: the run folder, or None to keep the records in memory.
        described: the search options, as the function ``described`` returns them. A folder with
            other options holds another search.

    Raises:
        RunFolderError: the folder is in use, cannot be written, or holds another search.

    Attributes:
        records: the open record store.
    """

    def __init__(self, folder: str | Path | None, described: dict[str, Any]) -> None:
        self._folder = None if folder is None else RunFolder(expanded(folder))
        self.records = RecordStore(Path(":memory:")) if self._folder is None else self._folder.store
        try:
            self._claim(described)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the store for other processes. A second call does nothing."""
        if self._folder is None:
            self.records.close()
        else:
            self._folder.close()

    def _claim(self, described: dict[str, Any]) -> None:
        owner = self.records.fact(_SEARCH)
        path = None if self._folder is None else self._folder.path
        hint = "give another folder as 'store', or the arguments that it was begun with"
        if owner is None and self.records.fact("pipeline") is not None:
            raise RunFolderError(f"{path} is the folder of a run of a pipeline", hint=hint)
        differs = [
            key for key in described if owner is not None and owner.get(key) != described[key]
        ]
        if differs and self.records.measured:
            text = "; ".join(
                f"{key} was {owner.get(key)} and is {described[key]}" for key in differs
            )
            raise RunFolderError(f"{path} belongs to another search: {text}", hint=hint)
        if differs:
            self.records.forget()
        self.records.set_fact(_SEARCH, described)


def described(search: SearchChoice, batch_size: int, fix: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a search as JSON values.

    A continued search must have the same options.

    Args:
        search: the resolved stages of the search.
        batch_size: the number of configurations in a batch.
        fix: the value of each fixed knob, by its name.
    """
    stages = (search.explorer, search.cost_model, search.sampler, search.synthesizer)
    value = {
        **{spec.kind: {"name": spec.name, **spec.options_json} for spec in stages},
        "seed": search.seed,
        "batch_size": batch_size,
        "plan_size": search.budget.plan_size,
        "fix": dict(fix),
    }
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain


Told = Mapping[str, Sequence[tuple[Config, float]]]
"""For each further quantity by name, pairs of configuration and value."""


class Rounds:
    """Proposes configurations to a user of ``Tuner``, and stores each round of the search.

    A round is stored with the limit of ``ask`` and the configurations that the user enqueued. A new
    process with the same store repeats the rounds from these values, and so continues the search.

    Args:
        run: the search of the task.
        store: the object that stores the rounds and the records of the task.

    Attributes:
        other: for each configuration, the quantities that the user reported beside the time, by
            name.
    """

    def __init__(self, run: TaskRun, store: RecordStore) -> None:
        self._run = run
        self._store = store
        self._task_id = run.records.stored.id
        self._batch = Batch(Proposal(configs=np.empty((0, 0), np.int32)), {})
        self._limit = 0
        self._waiting: list[Config] = []
        self._enqueued: list[Config] = []
        self.other = other_quantities(store, self._task_id)
        self._replay()

    @property
    def missing(self) -> tuple[Config, ...]:
        """The configurations of the current batch that have no value yet."""
        return self._batch.missing

    def enqueue(self, config: Config) -> None:
        """Put a configuration into the next batch, before all proposals (``TaskTuner.enqueue``)."""
        self._waiting.append(config)
        self._run.tuner.enqueue(config)

    def ask(self, limit: int) -> Batch:
        """Propose the next batch that has at least one configuration without a reported value.

        If the store already has all values of a batch, the search learns from them, and proposes
        another batch. The batch is empty if the search has nothing left to propose.

        Args:
            limit: the largest number of configurations in the batch.
        """
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
        """Store the measurement of one configuration of the current batch."""
        before = self._batch.seconds
        self._batch.arrive(measurement, time.perf_counter())
        self._run.save(measurement, self._batch, self._batch.seconds - before)

    def learn(self, other: Told) -> None:
        """Let the search stages learn from the batch that the user measured, and store the round.

        Call this method after the times of all configurations in the batch were stored.

        Args:
            other: quantities besides the time that the user reported, such as energy, by name. Each
                quantity is a list of pairs of a configuration and its value.
        """
        began = time.perf_counter()
        self._run.learn(self._batch)
        learn_seconds = time.perf_counter() - began
        self._store.set_fact(
            ASKED.format(task=self._task_id, number=self._number),
            {
                "limit": self._limit,
                "enqueued": self._enqueued,
                "told": self._batch.configs,
                "other": dict(other),
            },
        )
        self._number += 1
        self._enqueued = []
        for name, quantities in other.items():
            for config, value in quantities:
                self.other.setdefault(config, {})[name] = value
        if self._batch.submitted:
            self._run.announce(self._batch, limit=None, learn_seconds=learn_seconds)

    def _replay(self) -> None:
        """Repeat the stored rounds, to restore the search of an earlier process."""
        earlier = list(rounds(self._store, self._task_id))
        self._number = len(earlier)
        for asked in earlier:
            for config in asked["enqueued"]:
                self._run.tuner.enqueue(tuple(config))
            batch = self._run.propose(asked["limit"])
            if not batch.configs:
                break
            self._run.begin(batch, 0.0)
            self._run.learn(batch)
            if batch.missing:  # for example, another version of a stage proposes differently
                break
        # Measurements of a batch that was reported only in part serve the next batches.
        answered = {tuple(config) for asked in earlier for config in asked["told"]}
        records = self._run.records
        left = records.leftovers(records.measured.keys() - answered, ended=None)
        if left:
            self._run.tuner.adopt(left)
