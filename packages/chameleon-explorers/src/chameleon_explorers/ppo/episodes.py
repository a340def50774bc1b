"""All episodes of a walk as one batch: moves, legality and rewards, as arrays. No torch."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import ScoreFunction, Scores
from numpy.typing import NDArray

from chameleon_explorers.ppo.states import States

DOWN, STAY, UP, JUMP = range(4)
"""Actions of a knob: one index less, none, one index more, any other choice."""

Reward = Callable[[Scores, Scores, Scores], Scores]
"""Scores after the step, before it, and the best of the episode before it, to rewards."""

REWARDS: dict[str, Reward] = {
    "score": lambda after, before, best: after,  # noqa: ARG005
    "improvement": lambda after, before, best: after - before,  # noqa: ARG005
    "record": lambda after, before, best: np.maximum(after - best, 0.0),  # noqa: ARG005
}
"""Rewards by the name a pipeline gives them."""


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """The outcome of one step of all episodes.

    Attributes:
        rewards: shape (episodes,).
        goes_on: whether each episode goes on, shape (episodes,).
        tried: the legal configurations that the actions led to, shape (n, knobs).
        scores: their scores, shape (n,).
    """

    rewards: NDArray[np.float32]
    goes_on: NDArray[np.bool_]
    tried: Configs
    scores: Scores


class EpisodeBatch:
    """Episodes that walk a design space together.

    The environment of the paper's section 3.2. An action moves every knob by one index down or up,
    or not at all, or (beyond the paper) to any other choice. A knob at a bound stays there. If the
    configuration as a whole is not legal, the episode stays where it was.

    Args:
        space: the design space.
        score: the surrogate.
        starts: where the episodes begin, shape (episodes, knobs), legal.
        rng: draws where jumps lead.
        reward: a key of ``REWARDS``.
        illegal_penalty: taken from the reward of a move that is not legal.
        keep_best: whether an episode stays where it was if a step leads to a lower score. It is
            then always at its best; to an equal score it goes.
        end_share: an episode ends when this share of knobs stays or sits at a bound; None: never.

    Attributes:
        configs: where the episodes are, shape (episodes, knobs).
        scores: their scores, shape (episodes,).
        best: the best score of each episode, shape (episodes,).
        moves: the step each knob tried last: -1, 0 or 1; shape (episodes, knobs).
        alive: which episodes have not ended, shape (episodes,).
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
        """How each episode stands, in standard deviations of the starting points' scores.

        Columns: score; distance to the episode's best; gain of the last step; whether it was legal.
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
        """Which actions change something, shape (episodes, knobs, 4); to stay is always one."""
        allowed = np.empty((*self.configs.shape, 4), np.bool_)
        np.greater(self.configs, 0, out=allowed[:, :, DOWN])
        np.less(self.configs, self._last, out=allowed[:, :, UP])
        allowed[:, :, JUMP] = self._last > 0
        allowed &= self._space.active(self.configs)[:, :, None]
        allowed[:, :, STAY] = True
        return allowed

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Move all episodes that are alive.

        Args:
            actions: one of ``DOWN``, ``STAY``, ``UP`` and ``JUMP``, shape (episodes, knobs).
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
        """Let episodes go on from elsewhere, as new ones.

        Args:
            rows: which episodes.
            configs: where they begin, shape (len(rows), knobs).
            scores: the scores there, shape (len(rows),).
        """
        self.configs[rows] = configs
        self.scores[rows] = self.best[rows] = scores
        self.moves[rows] = 0
        self._gain[rows] = 0.0
        self._scored[rows] = False
        self.alive[rows] = True

    def _proposed(self, actions: NDArray[np.int64]) -> Configs:
        """The rows to which the actions lead, clamped at the bounds of every knob."""
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
        """Go to the legal configurations that were tried, or to those that are no worse."""
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
