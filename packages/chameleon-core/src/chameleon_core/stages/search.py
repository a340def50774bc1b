"""Contracts of the stages that search: explorer, cost model, sampler, synthesizer.

All of them speak arrays: configurations of shape (n, knobs), scores of shape (n,), higher is
better. Each gets its own random generator, spawned from the run's seed.

No method here has an error of its own. An exception ends the run, as a ``PluginError`` that names
the stage unless it is a ``ChameleonError``. An array of another shape or type is such an error,
too; illegal, repeated or visited rows are dropped and counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.space import Configs, DesignSpace, Keys
from chameleon_core.task import Task


@attrs.frozen(kw_only=True, eq=False)
class Observations:
    """Everything measured so far for one task, in the order it was proposed.

    Attributes:
        configs: shape (n, knobs).
        costs: median kernel time in seconds, infinity for failures, shape (n,).
        failures: the kind of failure of each row, or None.
        build_seconds: wall-clock of each build in seconds, shape (n,).
        run_seconds: wall-clock of checking and timing each, in seconds, shape (n,).
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
        """The measurements as arrays."""
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
        """The lowest cost in seconds; infinity if nothing succeeded."""
        return float(np.min(self.costs, initial=np.inf, where=self.costs > 0))

    @property
    def relative_throughput(self) -> NDArray[np.float64]:
        """Best cost over cost, in (0, 1], and 0 for failures (AutoTVM's y / y_max); shape (n,)."""
        best = self.best_cost
        if not np.isfinite(best):
            return np.zeros(len(self))
        # A cost of zero or not-a-number comes from a broken clock, not from a fast kernel.
        timed = np.isfinite(self.costs) & (self.costs > 0)
        return np.divide(best, self.costs, out=np.zeros(len(self)), where=timed)


Shared = TypeVar("Shared")


@attrs.frozen(kw_only=True, eq=False)
class TaskHistory:
    """Everything measured of one task.

    Attributes:
        task: the task.
        space: the design space of the configurations.
        observations: the measurements, in the order they were proposed.
    """

    task: Task
    space: DesignSpace
    observations: Observations


class Archive:
    """Lets the stages of one task learn from the other tasks of a run.

    One archive belongs to one run. It is filled in the order of the rounds, which a resumed run
    repeats. So its contents depend on the seed alone.
    """

    def __init__(self) -> None:
        self._histories: dict[str, TaskHistory] = {}
        self._shared: dict[str, Any] = {}

    def record(self, history: TaskHistory) -> None:
        """Replace what is known of a task. Called after every batch."""
        self._histories[history.task.key] = history

    def others(self, task: Task) -> list[TaskHistory]:
        """The measurements of all tasks but this one, in the order they were first measured.

        Tasks are told apart by ``Task.key``: the same operator under another name is the same task.
        So a model that learns from here never sees the task it is asked about.
        """
        return [history for key, history in self._histories.items() if key != task.key]

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """An object that all tasks of the run share, made when first asked for.

        Args:
            name: who it belongs to and what it is, such as ``"ppo/policy"``.
            make: makes it.
        """
        if name not in self._shared:
            self._shared[name] = make()
        shared: Shared = self._shared[name]
        return shared


Scores = NDArray[np.float64]
ScoreFunction = Callable[[Configs], Scores]


@attrs.frozen(kw_only=True)
class StageContext:
    """The arguments of a stage when it is made, once per task.

    Attributes:
        space: the task's design space.
        task: the task itself, for stages that learn across tasks.
        rng: this stage's own generator; nothing else may be drawn from.
        batch_size: configurations measured per round.
        threads: threads that may be used for computing.
        archive: the other tasks of the run, and what stages share across tasks.
        device: what kernels run on, as ``TargetResolver.describe`` tells it.
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
    """Configurations an explorer proposes, with their scores, best first.

    Attributes:
        configs: shape (n, knobs), distinct.
        scores: shape (n,), higher is better. All zero if no trained cost model guided the
            walk; ranks, with no meaning beyond their order, if the explorer needs no model.
        steps: search steps taken to find them (surrogate evaluations per chain or episode).
        converged: the step after which the best surrogate score rose no more; None lets the loop
            tell it from the order in which configurations were scored.
    """

    configs: Configs
    scores: Scores
    steps: int = 0
    converged: int | None = None


class Visited:
    """The configurations already measured, or in flight, of one task."""

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

    def fresh(self, configs: Configs) -> NDArray[np.bool_]:
        """Which configurations were not visited, shape (n,)."""
        keys: Keys = self._space.keys(configs)
        return np.fromiter((key not in self._keys for key in keys.tolist()), bool, len(keys))

    def sample(self, count: int, rng: np.random.Generator) -> Configs:
        """Random distinct legal configurations that were not visited, at most ``count``.

        Fewer only if the space has (or its rejection sampling finds) no more.
        """
        drawn = self._space.sample(count, rng)
        drawn = drawn[self.fresh(drawn)]
        if len(drawn) < count:
            # Among so many distinct configurations at most len(self) were visited.
            drawn = self._space.sample(count + len(self), rng)
            drawn = drawn[self.fresh(drawn)]
        return drawn[:count]


class Explorer(ABC):
    """Walks the space and proposes candidates."""

    @abstractmethod
    def explore(self, score: ScoreFunction | None, visited: Visited, count: int) -> Candidates:
        """Propose up to ``count`` distinct legal configurations that were not visited.

        Args:
            score: predicts the quality of configurations; None until there is a trained model.
            visited: configurations not to propose again.
            count: how many to propose at most; fewer only if the walk found fewer.
        """

    def observe(self, observations: Observations) -> None:  # noqa: B027 - optional hook
        """Learn from everything measured so far. Called after every batch."""


class CostModel(ABC):
    """Predicts the quality of configurations from what was measured."""

    @abstractmethod
    def fit(self, observations: Observations) -> None:
        """Learn from everything measured so far."""

    @property
    @abstractmethod
    def trained(self) -> bool:
        """Whether ``predict`` says anything yet."""

    @abstractmethod
    def predict(self, configs: Configs) -> Scores:
        """Predicted quality, higher is better, shape (n,).

        A configuration's score must not depend on the others in the call. The loop asks about all
        of a small space at once, and explorers look theirs up.
        """

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        """Batch selection: which of some candidates to measure at the same time.

        For models that know how much one measurement says about another, as in GP-BUCB (Desautels
        et al. 2014). The best scores are often those of configurations so alike that one of them
        would do.

        Args:
            configs: the explorer's candidates, best score first, shape (n, knobs).
            count: how many are wanted.

        Returns:
            At most ``count`` distinct rows of ``configs``, the best first; None for those of the
            best scores.
        """
        del configs, count
        return None


class Sampler(ABC):
    """Keeps few of the candidates to be measured."""

    @abstractmethod
    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        """At most ``count`` configurations to measure next, best first.

        They should be distinct, legal and unvisited. The synthesizer replaces a row that is not,
        and a random configuration takes its place if the synthesizer does not. A sampler marks a
        free slot in this way.
        """


class Synthesizer(ABC):
    """Replaces or adds configurations in a batch before it is measured."""

    @abstractmethod
    def refine(self, batch: Configs, candidates: Candidates, visited: Visited) -> Configs:
        """The batch to measure: distinct, legal, unvisited, at most as many as came in.

        Rows of the batch that are illegal, repeated or visited are to be replaced.
        """

    def observe(self, observations: Observations) -> None:  # noqa: B027 - optional hook
        """Learn from everything measured so far. Called after every batch."""
