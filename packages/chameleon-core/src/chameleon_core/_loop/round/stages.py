"""The four search stages of one task, and the scores that guide its explorer."""

from __future__ import annotations

import hashlib
import math

import attrs
import numpy as np

from chameleon_core._loop.plugin_contract import PluginContract, contract_of
from chameleon_core._pipeline.schema import SearchChoice
from chameleon_core._plugins.kinds import KINDS
from chameleon_core._space.design import Configs, DesignSpace
from chameleon_core._stages import search as stages
from chameleon_core._task import Task


def generator(seed: int, *names: str) -> np.random.Generator:
    """Make a random generator that depends only on the seed and on ``names``.

    So an additional task or stage does not change the generators of other tasks and stages.

    Args:
        seed: the run's seed.
        names: strings that identify the purpose of the generator, such as a task's key and a
            stage's kind.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    words = np.frombuffer(digest[:16], dtype="<u4").tolist()
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(words))
    return np.random.default_rng(sequence)


@attrs.frozen(kw_only=True)
class SearchStages:
    """The explorer, cost model, sampler and synthesizer of one task.

    Every method checks what the plugin returned. Rows that the method must not return, such as
    illegal ones, are dropped. Any other breach of the contract is a ``PluginError`` that names the
    plugin.
    """

    explorer: stages.Explorer
    cost_model: stages.CostModel
    sampler: stages.Sampler
    synthesizer: stages.Synthesizer
    space: DesignSpace
    task: Task
    archive: stages.Archive = attrs.field(factory=stages.Archive)
    contracts: dict[str, PluginContract] = attrs.field(
        factory=lambda: {
            kind: PluginContract(noun=KINDS[kind].noun, name="?")
            for kind in ("explorers", "cost_models", "samplers", "synthesizers")
        }
    )

    @classmethod
    def of(cls, choice: SearchChoice, context: stages.StageContext) -> SearchStages:
        """Make the stages that a pipeline names for a task, each with its own random generator.

        Args:
            choice: the names and options of the stages, such as a resolved pipeline.
            context: the task and its design space. Its generator is not used.
        """
        created = {}
        specs = (choice.explorer, choice.cost_model, choice.sampler, choice.synthesizer)
        for spec in specs:
            rng = generator(choice.seed, context.task.key, spec.kind)
            with contract_of(spec).call(f"start for task {context.task.name!r}"):
                created[spec.kind] = spec.create(attrs.evolve(context, rng=rng))
        return cls(
            explorer=created["explorers"],
            cost_model=created["cost_models"],
            sampler=created["samplers"],
            synthesizer=created["synthesizers"],
            space=context.space,
            task=context.task,
            archive=context.archive,
            contracts={spec.kind: contract_of(spec) for spec in specs},
        )

    @property
    def score(self) -> stages.Explorer.ScoreFunction | None:
        """The cost model's prediction as a function, or None if the model is not trained yet."""
        contract = self.contracts["cost_models"]
        with contract.call("say whether it is trained"):
            if not self.cost_model.trained:
                return None

        def predict(configs: Configs) -> stages.Scores:
            with contract.call("predict"):
                return contract.scores(self.cost_model.predict(configs), len(configs))

        return predict

    def explore(self, visited: stages.Visited, count: int) -> stages.Candidates:
        """Ask the explorer for candidates, and return those that are legal, distinct and new.

        Args:
            visited: the configurations that were measured before.
            count: the largest number of candidates.
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

    def selected_batch_first(self, candidates: stages.Candidates, count: int) -> stages.Candidates:
        """Move the candidates that the cost model would select for one batch to the front.

        The array of scores stays as it is, with the highest score first. So the moved
        configurations get the highest scores, which samplers prefer. Scores in the result thus need
        not be those that the model predicted for the configurations.

        Args:
            candidates: the candidates of the explorer.
            count: the number of configurations to measure in one batch.
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

    def select(self, candidates: stages.Candidates, visited: stages.Visited, count: int) -> Configs:
        """Ask the sampler to select candidates, and drop rows with an index out of range.

        The remaining rows may be illegal or visited, because the synthesizer replaces such rows.

        Args:
            candidates: the candidates of the explorer.
            visited: the configurations that were measured before.
            count: the largest number of rows.
        """
        contract = self.contracts["samplers"]
        with contract.call("select"):
            chosen = self.sampler.select(candidates, visited, count)
            return contract.in_range(chosen, self.space)[:count]

    def refine(
        self, batch: Configs, candidates: stages.Candidates, visited: stages.Visited
    ) -> Configs:
        """Let the synthesizer replace rows of a batch, and return the usable rows of its result.

        The result has at most as many rows as ``batch``.

        Args:
            batch: the sampler's choice, shape (n, knobs).
            candidates: the candidates of the explorer.
            visited: the configurations that were measured before.
        """
        contract = self.contracts["synthesizers"]
        with contract.call("refine"):
            refined = self.synthesizer.refine(batch, candidates, visited)
            return contract.usable(refined, self.space, visited)[: len(batch)]

    def learn(self, observations: stages.Observations) -> None:
        """Let cost model, explorer and synthesizer, in this order, learn all measurements so far.

        Args:
            observations: all measurements of the task so far.
        """
        with self.contracts["cost_models"].call("fit"):
            self.cost_model.fit(observations)
        with self.contracts["explorers"].call("observe"):
            self.explorer.observe(observations)
        with self.contracts["synthesizers"].call("observe"):
            self.synthesizer.observe(observations)
        self.archive.record(
            stages.Archive.History(task=self.task, space=self.space, observations=observations)
        )


_TABULATED = 1 << 15
"""Largest number of legal configurations for which a space is scored as a whole, in one call of the
model. It is half of the scores that 128 chains or episodes ask for in 500 steps, in 500 calls."""


class ScoreTable:
    """The scores of all legal configurations of a small space, predicted only once.

    The cost model predicts them at the first call. Illegal configurations are not in the table; the
    model predicts their scores at every call.

    Args:
        score: the cost model's prediction.
        everything: all legal configurations, shape (m, knobs).
        space: the design space of the configurations.
    """

    def __init__(
        self, score: stages.Explorer.ScoreFunction, everything: Configs, space: DesignSpace
    ) -> None:
        self._score = score
        self._space = space
        keys = space.keys(everything)
        order = np.argsort(keys, kind="stable")
        self._keys, self._everything = keys[order], everything[order]
        self._scores: stages.Scores | None = None

    def __call__(self, configs: Configs) -> stages.Scores:
        """Scores of configurations, shape (n,)."""
        if self._scores is None:
            self._scores = self._score(self._everything)
        keys = self._space.keys(configs)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        scores: stages.Scores = self._scores[places]
        unknown = self._keys[places] != keys
        if unknown.any():
            scores[unknown] = self._score(np.asarray(configs)[unknown])
        return scores


def tabulated(
    score: stages.Explorer.ScoreFunction, space: DesignSpace
) -> stages.Explorer.ScoreFunction:
    """A table of a score function's values if the space is small, else the function itself.

    The table saves predictions, because an explorer asks for the same scores many times.

    Args:
        score: the cost model's prediction.
        space: the design space.
    """
    everything = space.all_legal
    if everything is None or not 0 < len(everything) <= _TABULATED:
        return score
    return ScoreTable(score, everything, space)


class WatchedScores:
    """A score function that records when it returned the best score of a new configuration.

    The record tells after which search step an explorer found nothing better. Configurations that
    were measured before do not count, because many searches start at the best of them.

    Args:
        score: the cost model's prediction.
        visited: the configurations that were measured before.

    Attributes:
        best: the best score of an unvisited configuration so far; minus infinity before the first
            one.
    """

    def __init__(self, score: stages.Explorer.ScoreFunction, visited: stages.Visited) -> None:
        self.best = -math.inf
        self._score = score
        self._visited = visited
        self._scored = 0
        self._scored_at_best = 0

    def __call__(self, configs: Configs) -> stages.Scores:
        """Score configurations of shape (n, knobs), and record whether a score is a new best."""
        scores = self._score(configs)
        better = np.flatnonzero(scores > self.best)
        if len(better):
            better = better[self._visited.unvisited(configs[better])]
        if len(better):
            first = better[np.argmax(scores[better])]
            self.best = float(scores[first])
            self._scored_at_best = self._scored + int(first) + 1
        self._scored += len(scores)
        return scores

    def converged(self, steps: int) -> int:
        """The search step in which the best score was computed.

        Args:
            steps: the number of steps of the whole search. Each step is assumed to score equally
                many configurations, which holds for parallel chains and episodes.
        """
        if not self._scored:
            return 0
        return math.ceil(steps * self._scored_at_best / self._scored)
