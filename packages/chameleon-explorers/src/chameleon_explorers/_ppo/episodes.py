"""All walks (episodes) of a round as one batch of arrays: moves, legality and rewards.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, Explorer, Scores
from numpy.typing import NDArray

from chameleon_explorers._ppo.states import States

DOWN, STAY, UP, JUMP = range(4)
"""Actions of a knob: the index below, the same index, the index above, any other index."""

Reward = Callable[[Scores, Scores, Scores], Scores]
"""Computes rewards from the scores after the step, before the step, and the best before it."""

REWARDS: dict[str, Reward] = {
    "score": lambda after, before, best: after,  # noqa: ARG005
    "improvement": lambda after, before, best: after - before,  # noqa: ARG005
    "record": lambda after, before, best: np.maximum(after - best, 0.0),  # noqa: ARG005
}
"""Reward functions by the name in the pipeline's option ``reward``."""


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """The result of one step of all episodes.

    Attributes:
        rewards: the reward of each episode, shape (episodes,).
        not_done: whether each episode continues after the step, shape (episodes,).
        legal_configs: the legal configurations that the actions proposed, shape (n, knobs).
        scores: the scores of these configurations, shape (n,).
    """

    rewards: NDArray[np.float32]
    not_done: NDArray[np.bool_]
    legal_configs: Configs
    scores: Scores


class EpisodeBatch:
    """Episodes that walk a design space together (Ahn et al. 2020, section 3.2).

    Beyond the paper, a jump moves a knob to any other index. An episode does not move to an illegal
    configuration.

    Args:
        starts: the legal configurations where the episodes begin, shape (episodes, knobs).

    Attributes:
        configs: the current configuration of each episode, shape (episodes, knobs).
        scores: the scores of the current configurations, shape (episodes,).
        best: the best score that each episode has met, shape (episodes,).
        moves: the direction of each knob's last step: -1, 0 or 1, shape (episodes, knobs).
        alive: whether each episode continues, shape (episodes,).
    """

    def __init__(
        self,
        space: DesignSpace,
        score: Explorer.ScoreFunction,
        starts: Configs,
        *,
        rng: np.random.Generator,
        reward: str,
        illegal_penalty: float = 0.0,
        keep_best: bool = False,
        end_share: float | None = None,
    ) -> None:
        self._space = space
        self._score = score
        self._rng = rng
        self._reward = REWARDS[reward]
        self._raw = reward == "score"
        self._penalty = illegal_penalty
        self._keep_best = keep_best
        self._end_share = end_share
        self._bounds = (space.cardinalities - 1).astype(np.int32)
        self.configs = starts.astype(np.int32)
        # A copy, because it is changed below.
        self.scores: Scores = np.array(score(starts), np.float64)
        self.best = self.scores.copy()
        self.moves = np.zeros(self.configs.shape, np.int8)
        self.alive = np.ones(len(self.configs), np.bool_)
        self._gain = np.zeros(len(self.configs))
        self._scored = np.zeros(len(self.configs), np.bool_)
        # Scores are standardised, because they have no fixed unit or range.
        spread = float(np.std(self.scores)) if len(self.scores) else 0.0
        self._centre = float(np.mean(self.scores)) if len(self.scores) else 0.0
        self._spread = spread if spread > 1e-9 else 1.0  # noqa: PLR2004 - all scores equal

    def __len__(self) -> int:
        return len(self.configs)

    @property
    def summary(self) -> States:
        """The progress of each episode as network inputs, shape (episodes, 4).

        The columns are the score, the distance to the best score, the last gain, and whether the
        last step was legal. The first three are in standard deviations of the starting scores.
        """
        return np.column_stack(
            [
                np.clip((self.scores - self._centre) / self._spread, -8.0, 8.0),
                np.clip((self.best - self.scores) / self._spread, 0.0, 8.0),
                np.clip(self._gain / self._spread, -8.0, 8.0),
                self._scored,
            ]
        ).astype(np.float32)

    def movable(self) -> NDArray[np.bool_]:
        """Whether each action would change its knob, shape (episodes, knobs, 4).

        ``STAY`` is always True.
        """
        allowed = np.empty((*self.configs.shape, 4), np.bool_)
        np.greater(self.configs, 0, out=allowed[:, :, DOWN])
        np.less(self.configs, self._bounds, out=allowed[:, :, UP])
        allowed[:, :, JUMP] = self._bounds > 0
        allowed &= self._space.active(self.configs)[:, :, None]
        allowed[:, :, STAY] = True
        return allowed

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Move every episode that has not ended by one step.

        ``actions`` has ``DOWN``, ``STAY``, ``UP`` or ``JUMP`` for each knob, shape (episodes,
        knobs).
        """
        proposed = self._apply(actions)
        moved = (proposed != self.configs).any(axis=1) & self.alive
        rows = np.flatnonzero(moved)
        legal = self._space.legal(proposed[rows])
        illegal = rows[~legal]
        rows = rows[legal]
        legal_configs, scores = proposed[rows], np.empty(0)
        new_scores = self.scores.copy()
        if len(rows):
            scores = self._score(legal_configs)
            new_scores[rows] = scores
        rewards = self._rewards(new_scores)
        rewards[illegal] -= self._penalty
        self._advance(legal_configs, rows, new_scores)
        not_done = self.alive.copy()
        if self._end_share is not None:
            still = (actions == STAY) | (self.configs == 0) | (self.configs == self._bounds)
            not_done &= still.mean(axis=1) < self._end_share
        self.alive &= not_done
        return Step(rewards=rewards, not_done=not_done, legal_configs=legal_configs, scores=scores)

    def restart(self, rows: NDArray[np.intp], configs: Configs, scores: Scores) -> None:
        """Let the episodes ``rows`` continue at configurations (n, knobs) with scores (n,)."""
        self.configs[rows] = configs
        self.scores[rows] = self.best[rows] = scores
        self.moves[rows] = 0
        self._gain[rows] = 0.0
        self._scored[rows] = False
        self.alive[rows] = True

    def _apply(self, actions: NDArray[np.int64]) -> Configs:
        """The configurations after the actions, clamped at the bounds of every knob."""
        shift = actions.astype(np.int32) - STAY
        jumping = np.nonzero(actions == JUMP)
        shift[jumping] = 0
        proposed = np.clip(self.configs + shift, 0, self._bounds)
        if len(jumping[0]):
            largest = self._bounds[jumping[1]]
            offset = 1 + (self._rng.random(len(largest)) * largest).astype(np.int32)
            target = (self.configs[jumping] + offset) % (largest + 1)
            proposed[jumping] = np.where(largest > 0, target, self.configs[jumping])
        return self._space.canonical(proposed)

    def _rewards(self, new_scores: Scores) -> NDArray[np.float32]:
        rewards = self._reward(new_scores, self.scores, self.best)
        return (rewards if self._raw else rewards / self._spread).astype(np.float32)

    def _advance(self, legal_configs: Configs, rows: NDArray[np.intp], new_scores: Scores) -> None:
        """Move episodes to legal configurations; with ``keep_best``, not to worse ones."""
        self.moves[:] = 0
        self.moves[rows] = np.sign(legal_configs - self.configs[rows])
        self._gain = new_scores - self.scores
        self._scored[:] = False
        self._scored[rows] = True
        self.best = np.maximum(self.best, new_scores)
        if self._keep_best:
            followed = self._gain[rows] >= 0.0
            legal_configs, rows = legal_configs[followed], rows[followed]
        self.configs[rows] = legal_configs
        self.scores[rows] = new_scores[rows]
