"""Contracts of the stages that search: explorer, cost model, sampler, synthesizer.

All of them work on arrays: configurations of shape (n, knobs), and scores of shape (n,), for which
higher is better. Each stage gets its own random generator, which follows from the run's seed.

A method of a stage may raise any exception, which ends the run. If the exception is no
``ChameleonError``, Chameleon raises a ``PluginError`` that names the stage instead. Chameleon also
raises a ``PluginError`` if a method returns an array of another shape or dtype. Illegal, repeated
or visited rows are dropped and logged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._space.design import Configs, DesignSpace
from chameleon_core._task import Task


@attrs.frozen(kw_only=True, eq=False)
class Observations:
    """All measurements of one task so far, in the order in which they were proposed.

    Attributes:
        configs: knob indices, shape (n, knobs).
        costs: the median kernel time in seconds of each row, infinity for failures, shape (n,).
        failures: the kind of failure of each row, or None if it succeeded.
        build_seconds: the wall-clock time of each row's build in seconds, shape (n,).
        run_seconds: the wall-clock time of each row's check and timing in seconds, shape (n,).
    """

    configs: Configs
    costs: NDArray[np.float64]
    failures: tuple[FailureKind | None, ...]
    build_seconds: NDArray[np.float64]
    run_seconds: NDArray[np.float64] = attrs.field()

    @run_seconds.default
    def _no_run_seconds(self) -> NDArray[np.float64]:
        return np.zeros(len(self.configs))

    @classmethod
    def of(cls, space: DesignSpace, measurements: list[Measurement]) -> Observations:
        """Convert measurements to arrays."""
        width = len(space.knobs)
        return cls(
            configs=np.array([m.config for m in measurements], np.int32).reshape(-1, width),
            costs=np.array([m.cost for m in measurements], np.float64),
            failures=tuple(m.failure for m in measurements),
            build_seconds=np.array([m.build_seconds for m in measurements], np.float64),
            run_seconds=np.array([m.run_seconds for m in measurements], np.float64),
        )

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def best_cost(self) -> float:
        """The lowest kernel time in seconds; infinity if no configuration succeeded."""
        return float(np.min(self.costs, initial=np.inf, where=self.costs > 0))

    @property
    def fastest(self) -> Configs:
        """The configurations that succeeded, fastest first, shape (m, knobs)."""
        timed = np.flatnonzero(np.isfinite(self.costs))
        fastest: Configs = self.configs[timed[np.argsort(self.costs[timed], kind="stable")]]
        return fastest

    @property
    def relative_throughput(self) -> NDArray[np.float64]:
        """The task's lowest time divided by each configuration's time, shape (n,).

        The values are in (0, 1], and 0 for failures. AutoTVM trains its cost model on them.
        """
        best = self.best_cost
        if not np.isfinite(best):
            return np.zeros(len(self))
        # A cost of zero or NaN comes from a broken clock, not from a fast kernel.
        timed = np.isfinite(self.costs) & (self.costs > 0)
        return np.divide(best, self.costs, out=np.zeros(len(self)), where=timed)


Shared = TypeVar("Shared")


class Archive:
    """Lets the stages of one task learn from the other tasks of a run.

    Each run has one archive. A resumed run repeats its rounds in the same order, so the archive's
    content depends only on the seed.
    """

    @attrs.frozen(kw_only=True, eq=False)
    class History:
        """All measurements of one task, from which the stages of other tasks may learn.

        Attributes:
            task: the task.
            space: the design space of the configurations.
            observations: the measurements, in the order in which they were proposed.
        """

        task: Task
        space: DesignSpace
        observations: Observations

    def __init__(self) -> None:
        self._histories: dict[str, Archive.History] = {}
        self._shared: dict[str, Any] = {}

    def record(self, history: Archive.History) -> None:
        """Store all measurements of a task so far, for stages of other tasks that learn from them.

        Chameleon calls this method after every batch.

        Args:
            history: the measurements, which replace the task's earlier ones.
        """
        self._histories[history.task.key] = history

    def others(self, task: Task) -> list[Archive.History]:
        """The measurements of all other tasks, in the order in which they were first measured.

        Tasks with the same ``Task.key`` count as the same task, even if their names differ. So a
        model never learns from the task that it predicts.
        """
        return [history for key, history in self._histories.items() if key != task.key]

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """An object that all tasks of the run share. The first call makes the object.

        Args:
            name: a name that no other object has: the owner, the object, and all options that the
                object depends on, such as ``"ppo/policy of width 32"``.
            make: a function that makes the object.
        """
        if name not in self._shared:
            self._shared[name] = make()
        shared: Shared = self._shared[name]
        return shared


Scores = NDArray[np.float64]


@attrs.frozen(kw_only=True)
class StageContext:
    """The objects that Chameleon passes to a search stage when it makes the stage, once per task.

    Attributes:
        space: the task's design space.
        task: the task, for stages that learn across tasks.
        rng: the stage's own random generator. The stage must not use another one.
        batch_size: the number of configurations per round.
        threads: the number of threads that the stage may use.
        archive: the measurements of the run's other tasks, and objects that stages share across
            tasks.
        device: the device's description (``TargetResolver.describe``).
    """

    space: DesignSpace
    task: Task
    rng: np.random.Generator
    batch_size: int
    threads: int
    archive: Archive = attrs.field(factory=Archive)
    device: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True, eq=False)
class Candidates:
    """Configurations that an explorer proposes, with their scores, best first.

    Attributes:
        configs: knob indices of distinct configurations, shape (n, knobs).
        scores: the score of each configuration, shape (n,), higher is better. All scores are zero
            if there is no trained cost model. An explorer that needs no model may return ranks;
            only the order of scores counts.
        steps: the number of search steps that the explorer took: predictions per chain or episode.
        converged: the search step after which the best predicted score rose no more. If None,
            Chameleon derives it from the order of predictions.
    """

    configs: Configs
    scores: Scores
    steps: int = 0
    converged: int | None = None


class Visited:
    """A set of the configurations of one task that were measured, or are being measured.

    Search stages use it in order to propose only new configurations.
    """

    def __init__(self, space: DesignSpace) -> None:
        self._space = space
        self._keys: set[int] = set()

    def add(self, configs: Configs) -> None:
        """Mark configurations as visited."""
        self._keys.update(self._space.keys(configs).tolist())

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def unvisited(self, configs: Configs) -> NDArray[np.bool_]:
        """Whether each configuration is unvisited, shape (n,)."""
        keys = self._space.keys(configs)
        return np.fromiter((key not in self._keys for key in keys.tolist()), bool, len(keys))

    def sample(self, count: int, rng: np.random.Generator) -> Configs:
        """Draw at most ``count`` distinct legal configurations that are unvisited.

        The result has fewer rows only if the space has no more, or if rejection sampling finds no
        more.

        Args:
            count: the largest number of configurations.
            rng: the random generator.
        """
        drawn = self._space.sample(count, rng)
        drawn = drawn[self.unvisited(drawn)]
        if len(drawn) < count:
            # At most len(self) of these distinct configurations were visited.
            drawn = self._space.sample(count + len(self), rng)
            drawn = drawn[self.unvisited(drawn)]
        return drawn[:count]


class Explorer(ABC):
    """Searches the design space and proposes candidates."""

    ScoreFunction = Callable[[Configs], Scores]
    """Predicts the quality of configurations, of shape (n, knobs); higher is better."""

    @abstractmethod
    def explore(
        self, score: Explorer.ScoreFunction | None, visited: Visited, count: int
    ) -> Candidates:
        """Propose up to ``count`` distinct legal configurations that are unvisited.

        Args:
            score: a function that predicts the quality of configurations, higher is better. None
                before a cost model is trained.
            visited: the configurations that must not be proposed again.
            count: the largest number of proposals. Return fewer only if the search finds fewer.
        """

    def observe(self, observations: Observations) -> None:  # noqa: B027 - optional hook
        """Learn from all measurements so far. Chameleon calls this method after every batch."""


class CostModel(ABC):
    """Predicts the quality of configurations from measurements."""

    @abstractmethod
    def fit(self, observations: Observations) -> None:
        """Learn from all measurements so far. Chameleon calls this method after every batch."""

    @property
    @abstractmethod
    def trained(self) -> bool:
        """Whether the model can predict yet."""

    @abstractmethod
    def predict(self, configs: Configs) -> Scores:
        """Predicted quality of each configuration, higher is better, shape (n,).

        A score must not depend on the other configurations in the call. The reason is that
        Chameleon predicts all configurations of a small space once, and explorers look up the
        scores.

        Args:
            configs: knob indices, shape (n, knobs).
        """

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        """Choose the candidates to measure together in one batch.

        The best scores often belong to configurations so similar that measuring one of them is
        enough. A model should implement this method if it knows how much one measurement tells
        about another configuration, as in GP-BUCB (Desautels et al. 2014).

        Args:
            configs: the explorer's candidates, best score first, shape (n, knobs).
            count: the largest number of rows to choose.

        Returns:
            At most ``count`` distinct row numbers of ``configs``, best first. None means the rows
            with the best scores.
        """
        del configs, count
        return None


class Sampler(ABC):
    """Selects the few candidates that are measured."""

    @abstractmethod
    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        """Select at most ``count`` configurations to measure next, best first.

        The configurations should be distinct, legal and unvisited. The synthesizer may replace a
        configuration that is not; otherwise a random configuration replaces it.

        Args:
            candidates: the candidates of the explorer.
            visited: the configurations that were measured before.
            count: the largest number of configurations.
        """


class Synthesizer(ABC):
    """Replaces or adds configurations of a batch before it is measured."""

    @abstractmethod
    def refine(self, batch: Configs, candidates: Candidates, visited: Visited) -> Configs:
        """Replace configurations of a batch that are illegal, repeated or visited.

        Args:
            batch: the sampler's choice, shape (n, knobs).
            candidates: the candidates of the explorer.
            visited: the configurations that were measured before.

        Returns:
            The batch to measure: distinct, legal and unvisited configurations, not more than in
            ``batch``.
        """

    def observe(self, observations: Observations) -> None:  # noqa: B027 - optional hook
        """Learn from all measurements so far. Chameleon calls this method after every batch."""
