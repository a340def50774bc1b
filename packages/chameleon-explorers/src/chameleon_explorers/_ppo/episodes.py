"""All walks (episodes) of a round as one batch of arrays: moves, legality and rewards.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, ScoreFunction, Scores
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
        rewards: The reward of each episode, shape (episodes,).
        goes_on: Whether each episode continues after the step, shape (episodes,).
        tried: The legal configurations that the actions proposed, shape (n, knobs).
        scores: The scores of these configurations, shape (n,).
    """

    rewards: NDArray[np.float32]
    goes_on: NDArray[np.bool_]
    tried: Configs
    scores: Scores


class EpisodeBatch:
    """Episodes that walk a design space together (Ahn et al. 2020, section 3.2).

    Beyond the paper, a jump moves a knob to any other index.

    Args:
        starts: The legal configurations where the episodes begin, shape (episodes, knobs).

    Attributes:
        configs: The current configuration of each episode, shape (episodes, knobs).
        scores: The scores of the current configurations, shape (episodes,).
        best: The best score that each episode has met, shape (episodes,).
        moves: The direction of each knob's last step: -1, 0 or 1, shape (episodes, knobs).
        alive: Whether each episode continues, shape (episodes,).
    """

    def __init__(
        self,
        space: DesignSpace,
        score: ScoreFunction,
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
        self._last = (space.cardinalities - 1).astype(np.int32)
        self.configs = starts.astype(np.int32)
        # A copy: it is changed below, and the model may keep what it returned.
        self.scores: Scores = np.array(score(starts), np.float64)
        self.best = self.scores.copy()
        self.moves = np.zeros(self.configs.shape, np.int8)
        self.alive = np.ones(len(self.configs), np.bool_)
        self._gain = np.zeros(len(self.configs))
        self._scored = np.zeros(len(self.configs), np.bool_)
        # Scores have no unit that rewards could rely on: a rank score may lie anywhere.
        spread = float(np.std(self.scores)) if len(self.scores) else 0.0
        self._centre = float(np.mean(self.scores)) if len(self.scores) else 0.0
        self._spread = spread if spread > 1e-9 else 1.0  # noqa: PLR2004 - all scores equal

    def __len__(self) -> int:
        return len(self.configs)

    @property
    def summary(self) -> States:
        """The progress of each episode as network inputs, shape (episodes, 4)."""
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

        ``STAY``, which changes nothing, is True as well, because it is always allowed.
        """
        allowed = np.empty((*self.configs.shape, 4), np.bool_)
        np.greater(self.configs, 0, out=allowed[:, :, DOWN])
        np.less(self.configs, self._last, out=allowed[:, :, UP])
        allowed[:, :, JUMP] = self._last > 0
        allowed &= self._space.active(self.configs)[:, :, None]
        allowed[:, :, STAY] = True
        return allowed

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Move every walk (episode) that has not ended by one step.

        Args:
            actions: ``DOWN``, ``STAY``, ``UP`` or ``JUMP`` for each knob, shape (episodes, knobs).
        """
        proposed = self._proposed(actions)
        moved = (proposed != self.configs).any(axis=1) & self.alive
        rows = np.flatnonzero(moved)
        legal = self._space.legal(proposed[rows])
        illegal = rows[~legal]
        rows = rows[legal]
        tried, scores = proposed[rows], np.empty(0)
        reached = self.scores.copy()
        if len(rows):
            scores = self._score(tried)
            reached[rows] = scores
        rewards = self._rewards(reached)
        rewards[illegal] -= self._penalty
        self._advance(tried, rows, reached)
        goes_on = self.alive.copy()
        if self._end_share is not None:
            still = (actions == STAY) | (self.configs == 0) | (self.configs == self._last)
            goes_on &= still.mean(axis=1) < self._end_share
        self.alive &= goes_on
        return Step(rewards=rewards, goes_on=goes_on, tried=tried, scores=scores)

    def restart(self, rows: NDArray[np.intp], configs: Configs, scores: Scores) -> None:
        """Let some episodes go on from other configurations, as new episodes.

        ``configs`` has the new configurations of these episodes, shape (len(rows), knobs).
        ``scores`` are the scores of the new configurations, shape (len(rows),).
        """
        self.configs[rows] = configs
        self.scores[rows] = self.best[rows] = scores
        self.moves[rows] = 0
        self._gain[rows] = 0.0
        self._scored[rows] = False
        self.alive[rows] = True

    def _proposed(self, actions: NDArray[np.int64]) -> Configs:
        """The configurations that the actions lead to, clamped at the bounds of every knob."""
        shift = actions.astype(np.int32) - STAY
        jumping = np.nonzero(actions == JUMP)
        shift[jumping] = 0
        proposed = np.clip(self.configs + shift, 0, self._last)
        if len(jumping[0]):
            others = self._last[jumping[1]]
            away = 1 + (self._rng.random(len(others)) * others).astype(np.int32)
            there = (self.configs[jumping] + away) % (others + 1)
            proposed[jumping] = np.where(others > 0, there, self.configs[jumping])
        return self._space.canonical(proposed)

    def _rewards(self, reached: Scores) -> NDArray[np.float32]:
        rewards = self._reward(reached, self.scores, self.best)
        return (rewards if self._raw else rewards / self._spread).astype(np.float32)

    def _advance(self, tried: Configs, rows: NDArray[np.intp], reached: Scores) -> None:
        """Move episodes to the legal configurations tried; with ``keep_best``, only if no worse."""
        self.moves[:] = 0
        self.moves[rows] = np.sign(tried - self.configs[rows])
        self._gain = reached - self.scores
        self._scored[:] = False
        self._scored[rows] = True
        self.best = np.maximum(self.best, reached)
        if self._keep_best:
            followed = self._gain[rows] >= 0.0
            tried, rows = tried[followed], rows[followed]
        self.configs[rows] = tried
        self.scores[rows] = reached[rows]
