"""The four search stages of one task, and the scores that its explorer walks by."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_system.cores import usable_cores

from chameleon_core.loop.plugin_contract import PluginContract, contract_of
from chameleon_core.pipeline.schema import SearchChoice
from chameleon_core.plugins.kinds import KINDS
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import (
    Archive,
    Candidates,
    CostModel,
    Explorer,
    Observations,
    Sampler,
    ScoreFunction,
    Scores,
    StageContext,
    Synthesizer,
    TaskHistory,
    Visited,
)
from chameleon_core.task import Task


def generator(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on the seed and its names alone.

    Adding a task or a stage leaves the generators of the others as they are.

    Args:
        seed: the run's seed.
        names: what it is for, such as a task's key and a stage's kind.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    words = np.frombuffer(digest[:16], dtype="<u4").tolist()
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(words))
    return np.random.default_rng(sequence)


@attrs.frozen(kw_only=True)
class SearchStages:
    """Explorer, cost model, sampler and synthesizer of one task.

    Every method checks what the plugin returned. Rows that are illegal, repeated or visited are
    dropped. Any other breach of the contract is a ``PluginError`` that names the plugin.
    """

    explorer: Explorer
    cost_model: CostModel
    sampler: Sampler
    synthesizer: Synthesizer
    space: DesignSpace
    task: Task
    archive: Archive = attrs.field(factory=Archive)
    contracts: dict[str, PluginContract] = attrs.field(
        factory=lambda: {
            kind: PluginContract(noun=KINDS[kind].noun, name="?")
            for kind in ("explorers", "cost_models", "samplers", "synthesizers")
        }
    )

    @classmethod
    def of(
        cls,
        choice: SearchChoice,
        task: Task,
        space: DesignSpace,
        archive: Archive,
        *,
        batch_size: int,
        device: Mapping[str, Any],
    ) -> SearchStages:
        """The chosen stages for a task, each with a generator of its own.

        Args:
            choice: names the stages; a pipeline is one.
            task: the task.
            space: its design space.
            archive: the other tasks of the run.
            batch_size: configurations measured per round.
            device: what is known of the target's device.
        """
        stages = {}
        specs = (choice.explorer, choice.cost_model, choice.sampler, choice.synthesizer)
        for spec in specs:
            context = StageContext(
                space=space,
                task=task,
                rng=generator(choice.seed, task.key, spec.kind),
                batch_size=batch_size,
                threads=len(usable_cores()),
                archive=archive,
                device=device,
            )
            with contract_of(spec).call(f"start for task {task.name!r}"):
                stages[spec.kind] = spec.create(context)
        return cls(
            explorer=stages["explorers"],
            cost_model=stages["cost_models"],
            sampler=stages["samplers"],
            synthesizer=stages["synthesizers"],
            space=space,
            task=task,
            archive=archive,
            contracts={spec.kind: contract_of(spec) for spec in specs},
        )

    @property
    def score(self) -> ScoreFunction | None:
        """The cost model's prediction, or None until it is trained."""
        contract = self.contracts["cost_models"]
        with contract.call("say whether it is trained"):
            if not self.cost_model.trained:
                return None

        def predict(configs: Configs) -> Scores:
            with contract.call("predict"):
                return contract.scores(self.cost_model.predict(configs), len(configs))

        return predict

    def explore(self, visited: Visited, count: int) -> Candidates:
        """The explorer's candidates, usable ones only.

        Args:
            visited: configurations measured before.
            count: candidates at most.
        """
        contract = self.contracts["explorers"]
        score = self.score
        watch = None if score is None else WatchedScores(tabulated(score, self.space), visited)
        with contract.call("explore"):
            candidates = contract.candidates(
                self.explorer.explore(watch, visited, count), self.space, visited
            )
        if watch is None:
            return candidates
        if candidates.converged is None:
            candidates = attrs.evolve(candidates, converged=watch.converged(candidates.steps))
        return candidates

    def selected_batch_first(self, candidates: Candidates, count: int) -> Candidates:
        """The candidates with those first that the cost model would measure at the same time.

        The scores keep their order, best first: samplers go by them.

        Args:
            candidates: the explorer's.
            count: how many of them are to be measured at the same time.
        """
        if self.score is None:
            return candidates
        contract = self.contracts["cost_models"]
        with contract.call("say what to measure at the same time"):
            together = self.cost_model.select_batch(candidates.configs, count)
            if together is None:
                return candidates
            first = contract.rows(together, len(candidates.configs))
        rest = np.setdiff1d(np.arange(len(candidates.configs)), first)
        return attrs.evolve(candidates, configs=candidates.configs[np.concatenate([first, rest])])

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        """The sampler's choice, at most ``count`` rows; the synthesizer replaces unusable rows."""
        contract = self.contracts["samplers"]
        with contract.call("select"):
            chosen = self.sampler.select(candidates, visited, count)
            return contract.in_range(chosen, self.space)[:count]

    def refine(self, batch: Configs, candidates: Candidates, visited: Visited) -> Configs:
        """The synthesizer's batch, usable rows only, at most as many as came in."""
        contract = self.contracts["synthesizers"]
        with contract.call("refine"):
            refined = self.synthesizer.refine(batch, candidates, visited)
            return contract.usable(refined, self.space, visited)[: len(batch)]

    def learn(self, observations: Observations) -> None:
        """Tell cost model, explorer and synthesizer everything measured so far, in that order."""
        with self.contracts["cost_models"].call("fit"):
            self.cost_model.fit(observations)
        with self.contracts["explorers"].call("observe"):
            self.explorer.observe(observations)
        with self.contracts["synthesizers"].call("observe"):
            self.synthesizer.observe(observations)
        self.archive.record(
            TaskHistory(task=self.task, space=self.space, observations=observations)
        )


_TABULATED = 1 << 15
"""Legal configurations of a space that is scored as a whole: half of what 128 chains or episodes
may ask about in 500 steps, and asked in one call instead of 500."""


class ScoreTable:
    """A score function that asks the model about every configuration, once.

    The model is asked at the first call. Configurations outside the table, which are not legal,
    are the model's own affair.

    Args:
        score: the cost model's prediction.
        everything: all legal configurations, shape (m, knobs).
        space: their space.
    """

    def __init__(self, score: ScoreFunction, everything: Configs, space: DesignSpace) -> None:
        self._score = score
        self._space = space
        keys = space.keys(everything)
        order = np.argsort(keys, kind="stable")
        self._keys, self._everything = keys[order], everything[order]
        self._scores: Scores | None = None

    def __call__(self, configs: Configs) -> Scores:
        """Scores of shape (n,)."""
        if self._scores is None:
            self._scores = self._score(self._everything)
        keys = self._space.keys(configs)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        scores: Scores = self._scores[places]
        unknown = self._keys[places] != keys
        if unknown.any():
            scores[unknown] = self._score(np.asarray(configs)[unknown])
        return scores


def tabulated(score: ScoreFunction, space: DesignSpace) -> ScoreFunction:
    """The score function itself, or a table of it where the space is small enough for one."""
    everything = space.everything
    if everything is None or not 0 < len(everything) <= _TABULATED:
        return score
    return ScoreTable(score, everything, space)


class WatchedScores:
    """A score function that remembers when its best value for a new configuration came.

    Configurations measured before do not count: a walk often starts at the best of them, and
    would seem to have converged before its first step.

    Args:
        score: the cost model's prediction.
        visited: the configurations measured before.

    Attributes:
        best: the best score of a configuration not visited; minus infinity before the first.
    """

    def __init__(self, score: ScoreFunction, visited: Visited) -> None:
        self.best = -math.inf
        self._score = score
        self._visited = visited
        self._scored = 0
        self._scored_at_best = 0

    def __call__(self, configs: Configs) -> Scores:
        """Score configurations, shape (n, knobs), and look whether one is better than before."""
        scores = self._score(configs)
        better = np.flatnonzero(scores > self.best)
        if len(better):
            better = better[self._visited.fresh(configs[better])]
        if len(better):
            first = better[np.argmax(scores[better])]
            self.best = float(scores[first])
            self._scored_at_best = self._scored + int(first) + 1
        self._scored += len(scores)
        return scores

    def converged(self, steps: int) -> int:
        """The step in which the best was scored.

        Args:
            steps: steps of the whole walk. Each is taken to score equally many configurations,
                which holds for chains and episodes that walk side by side.
        """
        if not self._scored:
            return 0
        return math.ceil(steps * self._scored_at_best / self._scored)
