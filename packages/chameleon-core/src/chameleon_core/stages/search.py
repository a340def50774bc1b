"""Contracts of the stages that search: explorer, cost model, sampler, synthesizer.

All of them speak arrays: configurations of shape (n, knobs), scores of shape (n,), higher is
better. Each gets its own random generator, spawned from the run's seed.

No method here has an error of its own: whatever one of them raises ends the run, as a
``PluginError`` that names the stage unless it is a ``ChameleonError``. An array of another shape
or type is such an error, too; rows that are illegal, repeated or visited are dropped and counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core.space import Configs, DesignSpace, Keys
from chameleon_core.stages.archive import Archive
from chameleon_core.stages.observations import Observations
from chameleon_core.task import Task

Scores = NDArray[np.float64]
ScoreFunction = Callable[[Configs], Scores]


@attrs.frozen(kw_only=True)
class StageContext:
    """What a stage is given when it is made, once per task.

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
        scores: shape (n,), higher is better. All zero where no trained cost model guided the
            walk; ranks, with no meaning beyond their order, where the explorer needs no model.
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

        Fewer only where the space has (or its rejection sampling finds) no more.
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
            count: how many to propose at most; fewer only where the walk found fewer.
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

        A configuration's score must not depend on the others that are asked about with it: the
        loop asks about all of a small space at once, and explorers look theirs up.
        """

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        """Batch selection: which of some candidates to measure at the same time.

        For models that know how much one measurement tells of another, as in GP-BUCB (Desautels
        et al. 2014): the best scores are often those of configurations so alike that one of them
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

        They should be distinct, legal and unvisited. A row that is not is the synthesizer's to
        replace, and a random configuration takes its place where the synthesizer does not: this
        is how a sampler says that a slot is free.
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
