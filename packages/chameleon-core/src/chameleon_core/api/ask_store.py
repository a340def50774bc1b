"""Stores the batches that ``Tuner.ask`` returns, and the results that ``Tuner.tell`` gets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.api.measurements import ASKED, other_quantities, rounds
from chameleon_core.errors import ConfigError, RunFolderError
from chameleon_core.loop.round.batch import Batch, Config
from chameleon_core.loop.round.task_run import TaskRecords, TaskRun, say_what_does_not_apply
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.load import search_from_dict
from chameleon_core.pipeline.schema import SearchChoice
from chameleon_core.plugins.registry import Registry
from chameleon_core.run_folder import RunFolder
from chameleon_core.space import DesignSpace
from chameleon_core.store import RecordStore
from chameleon_core.task import Task


@attrs.frozen(kw_only=True, eq=False)
class Asked(Sequence[Mapping[str, Any]]):
    """The configurations of one batch, as ``Tuner.ask`` returns them.

    The batch is a sequence of mappings from knob name to value.

    Attributes:
        configurations: the mappings of the sequence, as a tuple.
        configs: the knob indices of each configuration, a tuple of one integer per knob.
        origins: the stage that proposed each configuration, an ``Origin``.
    """

    configurations: tuple[Mapping[str, Any], ...]
    configs: tuple[Config, ...]
    origins: tuple[str, ...]

    @classmethod
    def of(cls, batch: Batch, space: DesignSpace) -> Asked:
        """Decode the configurations of a batch that have no measurement yet."""
        return cls(
            configurations=tuple(space.decode(config) for config in batch.missing),
            configs=batch.missing,
            origins=tuple(str(batch.origins[config]) for config in batch.missing),
        )

    def __len__(self) -> int:
        return len(self.configurations)

    def __getitem__(self, index: Any) -> Any:
        return self.configurations[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.configurations)


def expect_told(last: Asked | None) -> None:
    """Check, before a new batch is proposed, that the last batch's values were reported.

    Args:
        last: the last batch if ``Tuner.tell`` has not reported its values yet, else None.

    Raises:
        ConfigError: ``last`` is not None.
    """
    if last is not None:
        raise ConfigError(
            f"the {len(last)} configurations that were asked for last are not told yet",
            hint="tell(batch, seconds) first, with None for those that have no time",
        )


def expect_last(asked: Asked, last: Asked | None) -> None:
    """Raise an error if values are reported for a batch other than the last one.

    Args:
        asked: the batch whose values are reported.
        last: the batch that the tuner proposed last, or None if no batch waits for its values.

    Raises:
        ConfigError: ``asked`` is not the batch that the tuner proposed last.
    """
    if asked is not last:
        raise ConfigError(
            "this batch is not the one that was asked for last, or it was told before",
            hint="tell each batch once, before the next one is asked for",
        )


_SEARCH = "ask_and_tell"
"""Key under which a store keeps the stages and options of its search."""


def search_of(options: Mapping[str, Any], registry: Registry | None) -> SearchChoice:
    """Resolve the stages of a search from options that are named as in a pipeline file.

    Args:
        options: keys of a pipeline with their values. Keys with the value None are left out.
        registry: the registry of plugins; if None, the registry of installed plugins.

    Raises:
        PipelineError: an option is wrong. The message has one line for each fault.
    """
    document = {key: value for key, value in options.items() if value is not None}
    return search_from_dict(document, source="arguments of the tuner", registry=registry)


class AskStore:
    """The records of an ask-and-tell search, in a run folder or in memory.

    Args:
        folder: the run folder, or None to keep the records in memory.
        search: the resolved stages of the search.
        batch_size: the number of configurations in a batch.
        fix: the value of each fixed knob, by its name.

    Raises:
        RunFolderError: the folder is in use, cannot be written, or holds another search.

    Attributes:
        records: the open record store.
    """

    def __init__(
        self,
        folder: str | Path | None,
        search: SearchChoice,
        *,
        batch_size: int,
        fix: Mapping[str, Any],
    ) -> None:
        self._folder = None if folder is None else RunFolder(Path(folder).expanduser())
        self.records = RecordStore(Path(":memory:")) if self._folder is None else self._folder.store
        self._told: dict[int, int] = {}
        try:
            self._claim(_described(search, batch_size, fix))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the store for other processes. A second call does nothing."""
        if self._folder is None:
            self.records.close()
        else:
            self._folder.close()

    def task_records(self, task: Task, space: str, design: DesignSpace) -> TaskRecords:
        """The stored records of a task.

        Logs a message if the store has records of another design space.

        Args:
            task: the task.
            space: the name of the provider that made the design space.
            design: the design space.
        """
        stored = self.records.add_task(task, space, design.fingerprint)
        say_what_does_not_apply(stored, self.records)
        return TaskRecords(self.records, stored)

    def rounds(self, task_id: int) -> list[dict[str, Any]]:
        """Read the finished rounds of a task, oldest first.

        A search that continues in a new process repeats these rounds. Each mapping has the values
        that ``add_round`` stored.

        Args:
            task_id: the number of the task's row in the store.
        """
        batches = list(rounds(self.records, task_id))
        self._told[task_id] = len(batches)
        return batches

    def add_round(self, task_id: int, asked: Mapping[str, Any]) -> None:
        """Store a finished round of a task after its earlier rounds."""
        number = self._told[task_id]
        self.records.set_fact(ASKED.format(task=task_id, number=number), asked)
        self._told[task_id] = number + 1

    def _claim(self, described: dict[str, Any]) -> None:
        owner = self.records.fact(_SEARCH)
        hint = "give another folder as 'store', or the arguments that it was begun with"
        if owner is None and self.records.fact("pipeline") is not None:
            raise RunFolderError(f"{self._path} is the folder of a run of a pipeline", hint=hint)
        differs = [
            key for key in described if owner is not None and owner.get(key) != described[key]
        ]
        if differs and self.records.measured:
            text = "; ".join(
                f"{key} was {owner.get(key)} and is {described[key]}" for key in differs
            )
            raise RunFolderError(f"{self._path} belongs to another search: {text}", hint=hint)
        if differs:
            self.records.forget()
        self.records.set_fact(_SEARCH, described)

    @property
    def _path(self) -> Path | None:
        return None if self._folder is None else self._folder.path


def _described(search: SearchChoice, batch_size: int, fix: Mapping[str, Any]) -> dict[str, Any]:
    """The options on which proposals depend, without the space, as JSON values."""
    stages = (search.explorer, search.cost_model, search.sampler, search.synthesizer)
    value = {
        **{spec.kind: {"name": spec.name, **spec.options_json} for spec in stages},
        "seed": search.seed,
        "batch_size": batch_size,
        "plan_size": search.budget.plan_size,
        "fix": dict(fix),
    }
    described: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return described


Told = Mapping[str, Sequence[tuple[Config, float]]]
"""For each further quantity by name, pairs of configuration and value."""


class Rounds:
    """Proposes configurations of one task, and stores the rounds of its search.

    A round is stored with the limit of ``ask`` and the configurations that the user enqueued. A new
    process with the same store repeats the rounds from these values, and so continues the search.

    Args:
        run: the search of the task.
        store: the object that stores the rounds and the records of the task.

    Attributes:
        other: for each configuration, quantities other than the time that the user reported, by
            name.
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

        The object already has the times of the batch.

        Args:
            other: other quantities that the user reported, such as energy, by name. Each has the
                configurations of the batch with their values.
        """
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
        for name, quantities in other.items():
            for config, value in quantities:
                self.other.setdefault(config, {})[name] = value
        if self._batch.submitted:
            self._run.announce(self._batch, limit=None, learn_seconds=learn_seconds)

    def _replay(self) -> None:
        """Repeat the stored rounds, to restore the search of an earlier process."""
        rounds = self._store.rounds(self._task_id)
        for asked in rounds:
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
        answered = {tuple(config) for asked in rounds for config in asked["told"]}
        records = self._run.records
        left = records.leftovers(records.measured.keys() - answered, ended=None)
        if left:
            self._run.tuner.adopt(left)
