"""Ask and tell: Chameleon proposes configurations, and the user's program measures them.

For each configuration, the user reports a time or the reason of its failure.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from chameleon_system.api import Closeable

from chameleon_core._api import checks
from chameleon_core._api.ask_store import AskStore, Rounds, described
from chameleon_core._api.measurements import RESERVED, Measurements, Rows, Trial
from chameleon_core._api.stages import with_stages
from chameleon_core._errors import ConfigError, InvalidConfigurationError
from chameleon_core._event_bus import EventBus, listener
from chameleon_core._events import Event
from chameleon_core._loop.round.batch import Batch, Config
from chameleon_core._loop.round.task_run import TaskRecords, TaskRun
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._pipeline.load import search_from_dict
from chameleon_core._plugins.registry import Registry
from chameleon_core._space.design import DesignSpace
from chameleon_core._space.fixed import config_of, fixed_space
from chameleon_core._stages.jobs import StageRef
from chameleon_core._stages.search import Archive
from chameleon_core._task import Task


class _Stop:
    """The type of ``STOP``, its only instance."""

    def __repr__(self) -> str:
        return "STOP"


STOP: Final = _Stop()
"""A callback returns this value to end the run after the measurements that are running."""

Callback = Callable[[Event], object]
"""A function of an event (``chameleon_core._events``). It returns ``STOP`` to end the run, or
anything else to continue."""


def listeners(callbacks: Iterable[Callback], stop: Callable[[], object]) -> list[object]:
    """Make a listener of events from each of the user's callbacks.

    Args:
        callbacks: functions that take one event. If a function raises, the error is logged, and the
            function is not called again.
        stop: the function to call if a callback returns ``STOP``.

    Raises:
        ConfigError: ``callbacks`` is not a sequence of functions.
    """
    callables = list(callbacks) if isinstance(callbacks, Iterable) else None
    if callables is None or not all(map(callable, callables)):
        raise ConfigError(
            f"'callbacks' must be a list of functions, not {callbacks!r}",
            hint="write callbacks=[function], also for a single one",
        )
    return [_listener(callback, stop, number) for number, callback in enumerate(callables)]


def _listener(callback: Callback, stop: Callable[[], object], number: int) -> object:
    def tell(event: Event) -> None:
        if callback(event) is STOP:
            stop()

    # The number distinguishes callbacks that have the same name.
    name = getattr(callback, "__qualname__", type(callback).__qualname__)
    return listener(tell, f"callbacks[{number}], {name}")


BATCH_SIZE = 8
"""Number of configurations in a batch if neither the tuner nor its preset sets it."""

OPERATOR = "function"
"""The operator's name in tasks that measure a function of the user's program."""

Stage = Any
"""A stage as in a pipeline file (its name, or a mapping with ``name`` and options). It may also be
the stage's class, an object of the class, or None. In a mapping, ``name`` may be a class."""


class Tuner(Closeable):
    """Proposes configurations of a design space, and learns from the values that you report.

    A tuner explores, samples, synthesizes and learns as a run does, but your program measures. With
    the same seed and the same calls of ``ask`` and ``tell``, it proposes the same configurations.

    Args:
        space: a design space, such as ``design_space`` returns.
        explorer: the explorer: its name, a mapping with ``name`` and options, a subclass of
            ``Explorer``, or an object of it. In a mapping, ``name`` may be a class; the first
            annotation of its constructor is the class of its options. If None, the preset's.
        cost_model: the cost model, in the form of ``explorer``; if None, the preset's.
        sampler: the sampler, in the form of ``explorer``; if None, the preset's.
        synthesizer: the synthesizer, in the form of ``explorer``; if None, the preset's.
        preset: the preset that names the stages you do not give; ``default`` if None.
        seed: the seed of all random choices.
        batch_size: the largest number of configurations that ``ask`` returns. If None, the preset's
            number, or 8 if the preset has none.
        store: a folder that keeps your reports. A new tuner with the same folder and arguments
            continues the search. If None, the reports stay in memory.
        fix: the value of each knob that must not vary, by the knob's name.
        callbacks: functions that take every event (``chameleon_core._events``). If a function
            returns ``STOP``, ``stopped`` becomes True.
        name: the name of the tuned program. The reports of one ``store`` must all have the same
            name.
        registry: the registry of plugins; if None, the registry of installed plugins.

    Raises:
        ConfigError: a stage, an option or a value is wrong.
        PluginError: a stage breaks its contract.
        RunFolderError: the store is in use, cannot be written, or belongs to another search.

    Attributes:
        space: the design space, with the values of ``fix``.
        batch_size: the largest number of configurations per ``ask``.
        stopped: whether a callback returned ``STOP``.

    Example:
        >>> import chameleon_core as cc
        >>> space = cc.design_space(tile=[1, 2, 4, 8], unroll=[0, 16])
        >>> with cc.Tuner(space, sampler="greedy", seed=0) as tuner:
        ...     batch = tuner.ask(8)
        ...     tuner.tell(batch, [8 / row["tile"] + row["unroll"] for row in batch])
        ...     tuner.best.configuration
        {'tile': 8, 'unroll': 0}
    """

    @attrs.frozen(kw_only=True, eq=False)
    class Asked(Sequence[Mapping[str, Any]]):
        """The configurations of one batch, as ``Tuner.ask`` returns them.

        The batch is a sequence of mappings from knob name to value.

        Attributes:
            configurations: the mappings of the sequence, as a tuple.
            configs: the knob indices of each configuration, a tuple of one integer per knob.
            origins: the stage that proposed each configuration, a ``Measurement.Origin``.
        """

        configurations: tuple[Mapping[str, Any], ...]
        configs: tuple[Config, ...]
        origins: tuple[str, ...]

        @classmethod
        def of(cls, batch: Batch, space: DesignSpace) -> Tuner.Asked:
            """Decode the configurations of a batch that have no measurement yet."""
            return cls(
                configurations=tuple(space.decode(config) for config in batch.missing),
                configs=batch.missing,
                origins=tuple(str(batch.proposal.origins[config]) for config in batch.missing),
            )

        def __len__(self) -> int:
            return len(self.configurations)

        def __getitem__(self, index: Any) -> Any:
            return self.configurations[index]

    def __init__(
        self,
        space: DesignSpace,
        *,
        explorer: Stage = None,
        cost_model: Stage = None,
        sampler: Stage = None,
        synthesizer: Stage = None,
        preset: str | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        store: str | Path | None = None,
        fix: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        name: str = OPERATOR,
        registry: Registry | None = None,
    ) -> None:
        options = {
            "preset": preset,
            "explorer": explorer,
            "cost_model": cost_model,
            "sampler": sampler,
            "synthesizer": synthesizer,
            "seed": seed,
        }
        given = {key: value for key, value in options.items() if value is not None}
        search = search_from_dict(*with_stages(given, registry))
        self.space = fixed_space(checks.a_space(space), space.columns(fix or {}))
        size = search.budget.batch_size or BATCH_SIZE if batch_size is None else batch_size
        self.batch_size = checks.whole_number(
            size, "batch_size", hint="leave it out for the default"
        )
        self.stopped = False
        self._asked: Tuner.Asked | None = None
        bus = EventBus(listeners(callbacks, self._stop))
        task = Task(
            name=name, operator=OPERATOR, arguments={"name": name}, target="python", flop=0.0
        )
        # Stages are made before the store is opened, so that options they refuse leave no folder
        # behind.
        tuner = TaskTuner.of(
            search, task, self.space, Archive(), batch_size=self.batch_size, device={}
        )
        self._store = AskStore(store, described(search, self.batch_size, fix or {}))
        self._close = weakref.finalize(self, self._store.close)
        try:
            self._run = TaskRun(
                space=self.space,
                space_ref=StageRef(factory="", options={}),
                tuner=tuner,
                records=TaskRecords.of(self._store.records, task, OPERATOR, self.space),
                publish=bus.publish,
            )
            self._rounds = Rounds(self._run, self._store.records)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the store for other processes. A second call does nothing.

        The store holds all reports already. ``best`` still works after ``close``; every other use
        of the store raises a ``ConfigError``.
        """
        self._close()

    def _stop(self) -> None:
        self.stopped = True

    # -- what is known ------------------------------------------------------------------------

    @property
    def best(self) -> Trial | None:
        """The fastest configuration so far, or None if no configuration succeeded."""
        records = self._run.records
        best = min(records.measured.values(), key=lambda row: row.cost, default=None)
        if best is None or not best.ok:
            return None
        return Trial(
            configuration=self.space.decode(best.config),
            config=best.config,
            seconds=best.cost,
            origin=records.origin(best.config),
            other=self._rounds.other.get(best.config, {}),
        )

    @property
    def measured(self) -> int:
        """Number of reported configurations, failures and earlier processes included."""
        return len(self._run.tuner.measurements)

    @property
    def measurements(self) -> Measurements:
        """All reports so far, in the order in which they arrived."""
        return Measurements(self.rows)

    def rows(self) -> Rows:
        """Read all values that were reported to this tuner, with the knob values of each.

        Raises:
            ConfigError: the tuner is closed.
        """
        self._expect_open()
        rows = Rows.of(self._store.records, self._run.records.stored.id)
        decoded = [self.space.decode(measurement.config) for measurement in rows.measurements]
        return attrs.evolve(rows, configurations=decoded)

    # -- rounds -------------------------------------------------------------------------------

    def enqueue(self, configuration: Mapping[str, Any]) -> None:
        """Put a configuration into the next batch, before all proposals.

        Several enqueued configurations keep their order. A configuration that you already reported
        is not proposed again.

        Args:
            configuration: the value of each knob by its name.

        Raises:
            ConfigError: the space has no such legal configuration. The message names the reason.
        """
        self._rounds.enqueue(config_of(self.space, configuration))

    def ask(self, count: int | None = None) -> Tuner.Asked:
        """Return the next configurations to measure. Report all of them before you ask again.

        Args:
            count: the largest number of configurations; ``batch_size`` if None.

        Returns:
            Distinct legal configurations that you have not reported yet. The batch is empty if
            every configuration of the space was reported.

        Raises:
            ConfigError: you have not reported the last batch, or ``count`` is not a whole number
                from 1 to ``batch_size``. Or the tuner is closed.
            PluginError: a stage breaks its contract.
        """
        self._expect_open()
        limit = checks.part_of_batch(count, self.batch_size)
        if self._asked is not None:
            raise ConfigError(
                f"the {len(self._asked)} configurations that were asked for last are not told yet",
                hint="tell(batch, seconds) first, with None for those that have no time",
            )
        asked = Tuner.Asked.of(self._rounds.ask(limit), self.space)
        self._asked = asked if len(asked) else None
        return asked

    def tell(
        self,
        asked: Tuner.Asked,
        seconds: Sequence[Any],
        *,
        other: Mapping[str, Sequence[float | None]] | None = None,
    ) -> None:
        """Report the values of a batch. The tuner learns from them.

        Args:
            asked: the batch that ``ask`` returned last.
            seconds: one entry for each configuration, in the order of the batch. An entry is a
                number above 0 (seconds, or another quantity to minimize), a list of repeats, or a
                failure. A failure is None, infinity, NaN, an exception, or a string. The string may
                begin with the kind of failure, as in ``"out_of_memory: 9 GiB"``.
            other: quantities other than ``seconds`` by name, each with one number or None for every
                configuration. The tuner stores them for Pareto fronts; the search ignores them.

        Raises:
            ConfigError: the batch is not the last one or was reported before, the number of entries
                is wrong, or an entry has no valid form. The tuner then learns nothing from the
                batch.
            PluginError: a stage breaks its contract.
        """
        checks.one_each(seconds, len(asked), "seconds")
        if not len(asked):
            return
        self._expect(asked)
        if len(self._rounds.missing) < len(asked):
            raise ConfigError(
                "a part of this batch was evaluated already",
                hint="evaluate(batch, function) once more, for the rest of it",
            )
        measurements = list(map(measurement_of, asked.configs, seconds))
        quantities = quantities_of(asked.configs, {} if other is None else other)
        with self._store.records.transaction():
            for measurement in measurements:
                self._rounds.save(measurement)
            self._asked = None
            self._rounds.learn(quantities)

    def evaluate(self, asked: Tuner.Asked, function: Callable[..., Any]) -> None:
        """Call a function for each configuration of a batch in this process, and report the values.

        The store keeps each value at once, so a restarted program does not compute it again. If a
        callback returns ``STOP``, this method returns early, and the next call evaluates the rest
        of the batch.

        Args:
            asked: the batch that ``ask`` returned last.
            function: a function of knob values, which it takes by their names. It returns an entry
                as ``tell`` accepts it. If it raises an exception, the configuration counts as
                failed.

        Raises:
            ConfigError: the batch is not the last one, the function's parameters are not the knobs,
                or a returned value has no valid form.
            PluginError: a stage breaks its contract.
        """
        if not len(asked):
            return
        self._expect(asked)
        checks.takes_knobs(function, self.space)
        for config in self._rounds.missing:
            if self.stopped:
                return
            began = time.perf_counter()
            try:
                said = function(**self.space.decode(config))
            except Exception as error:  # noqa: BLE001 - a bad candidate is a measurement
                said = error
            run_seconds = time.perf_counter() - began
            self._rounds.save(measurement_of(config, said, run_seconds=run_seconds))
        self._asked = None
        self._rounds.learn({})

    def _expect_open(self) -> None:
        if not self._close.alive:
            raise ConfigError(
                "this tuner was closed",
                hint="do it inside of the 'with', or make the tuner again, with its 'store'",
            )

    def _expect(self, asked: Tuner.Asked) -> None:
        self._expect_open()
        if asked is not self._asked:
            raise ConfigError(
                "this batch is not the one that was asked for last, or it was told before",
                hint="tell each batch once, before the next one is asked for",
            )


_KINDS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (InvalidConfigurationError, FailureKind.INVALID),
    (MemoryError, FailureKind.OUT_OF_MEMORY),
    (TimeoutError, FailureKind.RUN_TIMEOUT),
    (ConnectionError, FailureKind.DEVICE_LOST),
)
"""Kinds of failure by type of exception; every other exception is an error of the run."""


def measurement_of(config: tuple[int, ...], said: Any, *, run_seconds: float = 0.0) -> Measurement:
    """Turn a value that the user reported into a measurement.

    Args:
        config: knob indices of the configuration.
        said: the reported value: a number above 0 such as seconds, a list of numbers for several
            repeats, or a failure. A failure is None, infinity, NaN, an exception, or a string. The
            string may begin with a kind of failure and a colon.
        run_seconds: wall-clock time of the evaluation in seconds.

    Raises:
        ConfigError: ``said`` has none of these forms.
    """
    kind = FailureKind.RUN_ERROR
    if isinstance(said, BaseException):
        kind = next((kind for of, kind in _KINDS if isinstance(said, of)), kind)
        message = f"{type(said).__name__}: {said}"
    elif isinstance(said, str):
        head, colon, rest = said.partition(":")
        kinds = {kind.value: kind for kind in FailureKind}
        known = colon and head.strip() in kinds
        kind, message = (kinds[head.strip()], rest.strip()) if known else (kind, said)
    elif said is None:
        message = "it gave no time"
    else:
        repeats = _repeats(said)
        if all(map(math.isfinite, repeats)):
            return Measurement(config=config, seconds=repeats, run_seconds=run_seconds)
        message = f"it took {said}"
    return Measurement(config=config, failure=kind, message=message, run_seconds=run_seconds)


def _repeats(said: Any) -> tuple[float, ...]:
    values = said.tolist() if isinstance(said, np.ndarray | np.generic) else said
    entries = list(values) if isinstance(values, Sequence) else [values]
    if not entries or not all(_is_number(entry) for entry in entries):
        raise ConfigError(
            f"{said!r} is no outcome of a configuration",
            hint="tell seconds, a list of them (one per repeat), None, or a failure in words",
        )
    repeats = tuple(float(entry) for entry in entries)
    if all(map(math.isfinite, repeats)) and min(repeats) <= 0:
        raise ConfigError(
            f"{said!r} cannot be told: what is made small has to be above 0, as times are",
            hint="tell what falls and rises with it and is above 0, such as its exponential, or "
            "None for a failure",
        )
    return repeats


def _is_number(value: Any) -> bool:
    """Whether a value may be a time in seconds: any real number but a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def quantities_of(
    configs: Sequence[tuple[int, ...]], other: Mapping[str, Sequence[Any]]
) -> dict[str, list[tuple[tuple[int, ...], float]]]:
    """Further quantities of the configurations in a batch, by name, without missing values.

    Args:
        configs: knob indices of the configurations.
        other: for each quantity's name, one number or None per configuration.

    Raises:
        ConfigError: a name is not a string or is in ``RESERVED``, or a quantity does not have one
            number or None per configuration.
    """
    if not isinstance(other, Mapping):
        raise ConfigError(
            f"'other' must be lists of numbers by name, not {other!r}",
            hint='write other={"code_bytes": [64, 128]}',
        )
    numbers = {}
    for name, values in other.items():
        if not isinstance(name, str) or name in RESERVED:
            raise ConfigError(
                f"no quantity of yours can be called {name!r}",
                hint=f"take another text than {', '.join(RESERVED)}, which measurements have",
            )
        checks.one_each(values, len(configs), f"values of '{name}'")
        column = [value.item() if isinstance(value, np.generic) else value for value in values]
        odd = [value for value in column if not (value is None or isinstance(value, Real))]
        if odd:
            raise ConfigError(
                f"'{name}' has the value {odd[0]!r}, which is no number",
                hint="tell a number for each configuration; None for those that have none",
            )
        numbers[name] = [
            (config, float(value))
            for config, value in zip(configs, column, strict=True)
            if value is not None
        ]
    return numbers
