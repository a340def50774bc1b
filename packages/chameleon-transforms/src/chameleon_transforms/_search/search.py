"""The search of ``chameleon transform``: propose and judge networks, measure the best, repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import ConfigError, DesignSpace
from numpy.typing import NDArray

from chameleon_transforms._contract import NetworkScore
from chameleon_transforms._nest.tasks import Spec, specs_of
from chameleon_transforms._network.space import UNCHANGED, Candidate, NetworkSpace
from chameleon_transforms._scores.scorer import Scorer
from chameleon_transforms._search.front import Point, front, pareto_mask
from chameleon_transforms._search.latency import OperatorTimes
from chameleon_transforms._section import Transformation

log = structlog.get_logger()

_GENERATION = 32
"""Number of networks that are judged before the front is updated."""


class TransformSearch:
    """Searches the transformed networks of a space for short times and high scores."""

    def __init__(
        self,
        space: NetworkSpace,
        scorer: Scorer,
        scores: Mapping[str, NetworkScore],
        times: OperatorTimes,
        options: Transformation,
        *,
        batch: int,
        seed: int,
    ) -> None:
        self._space = space
        self._scorer = scorer
        self._scores = scores
        self._main_score = next(iter(scores))
        self._times = times
        self._measures = options.per_round > 0
        self._options = options
        self._batch = batch
        self._evolution = Evolution(space.design, np.random.default_rng([seed, 17]))
        self._predictor = OperatorPredictor()
        self._specs: set[Spec] = set()
        self._bound = self._bound_of_original()
        (self.original,) = self._score_configs([space.original])
        self._points: dict[tuple[int, ...], Point] = {self.original.config: self.original}

    @property
    def points(self) -> Sequence[Point]:
        """All judged networks, the original first."""
        return tuple(self._points.values())

    def run(self, progress: Callable[[int, int], None] = lambda *_: None) -> list[Point]:
        """Judge as many networks as the options say, and return the front, fastest first."""
        total, rounds = self._options.candidates, self._options.rounds
        self._measure([self.original])
        self._learn()
        for turn in range(rounds):
            until = total * (turn + 1) // rounds
            while len(self._points) - 1 < until:
                fresh = self._propose(min(_GENERATION, until - len(self._points) + 1))
                if not len(fresh):
                    log.info("network_space_exhausted", judged=len(self._points) - 1)
                    break
                for point in self._score_configs([tuple(row) for row in fresh.tolist()]):
                    self._points[point.config] = point
                progress(len(self._points) - 1, total)
            self._measure(self._promising())
        return self.front()

    def front(self) -> list[Point]:
        """The Pareto front by time (predicted if nothing is measured) and by the first score."""
        return front(self.points, self._main_score)

    # -- judging ------------------------------------------------------------------------------

    def _bound_of_original(self) -> Bound:
        """The bound that the original's score sets for all other networks."""
        original, score = (
            self._space.candidate(self._space.original),
            self._scores[self._main_score],
        )
        # The original is scored as the candidates are, because the last bits may depend on the
        # number of threads.
        (scores,) = self._scorer.score_all([original], {self._main_score: score})
        least = scores[self._main_score]
        if not np.isfinite(least):
            raise ConfigError(
                f"the original's score {self._main_score!r} is {least}",
                hint="See that the network's outputs on the data are finite.",
            )
        return Bound(
            score=least,
            multiply_adds=original.multiply_adds,
            proportional=score.proportional,
            tolerance=self._options.tolerance,
        )

    def _score_configs(self, configs: Sequence[tuple[int, ...]]) -> list[Point]:
        """Networks with their scores, and with times as far as they are known."""
        candidates = [self._space.candidate(config) for config in configs]
        scored = self._scorer.score_all(candidates, self._scores)
        return [
            self._point(config, candidate, scores)
            for config, candidate, scores in zip(configs, candidates, scored, strict=True)
        ]

    def _point(
        self, config: tuple[int, ...], candidate: Candidate, scores: Mapping[str, float]
    ) -> Point:
        self._specs.update(self._operators(candidate))
        full = {group.name: group.channels for group in self._space.groups}
        point = Point(
            config=config,
            seconds=None,
            predicted_seconds=0.0,
            scores=scores,
            parameters=sum(program.parameters for program in candidate.programs.values()),
            multiply_adds=candidate.multiply_adds,
            accepted=bool(scores[self._main_score] >= self._bound.at(candidate.multiply_adds)),
            transforms={n: label for n, label in candidate.labels.items() if label != UNCHANGED},
            channels={name: n for name, n in candidate.channels.items() if n < full[name]},
        )
        return self._timed(point, candidate)

    def _operators(self, candidate: Candidate) -> list[Spec]:
        programs = candidate.programs.values()
        return [spec for program in programs for spec in specs_of(program, batch=self._batch)]

    def _timed(self, point: Point, candidate: Candidate | None = None) -> Point:
        """A point with its seconds updated from the operators' times known so far."""
        candidate = candidate or self._space.candidate(point.config)
        specs = self._operators(candidate)
        known = [self._times.seconds(spec) for spec in specs]
        filled = [
            self._predictor.seconds(spec) if seconds is None else seconds
            for spec, seconds in zip(specs, known, strict=True)
        ]
        is_measured = not self._measures or all(seconds is not None for seconds in known)
        predicted = float(sum(filled))
        return attrs.evolve(
            point, seconds=predicted if is_measured else None, predicted_seconds=predicted
        )

    # -- proposing and measuring ---------------------------------------------------------------

    def _propose(self, count: int) -> Configs:
        points = list(self._points.values())
        configs = np.array([point.config for point in points], np.int32)
        legal = np.array([point.accepted for point in points])
        losses = [[point.predicted_seconds, -point.scores[self._main_score]] for point in points]
        return self._evolution.propose(configs, np.array(losses, np.float64), legal, count)

    def _promising(self) -> list[Point]:
        """The accepted points without measurement that are predicted to be fastest."""
        promising = [net for net in self._points.values() if net.accepted and net.seconds is None]
        promising.sort(key=lambda net: net.predicted_seconds)
        return promising[: self._options.per_round]

    def _measure(self, points: Sequence[Point]) -> None:
        """Measure the operators of some points, and update all points."""
        if not self._measures or not points:
            return
        candidates = [self._space.candidate(point.config) for point in points]
        self._times.measure(spec for candidate in candidates for spec in self._operators(candidate))
        self._learn()

    def _learn(self) -> None:
        """Fit the predictor to all known times, and update all points."""
        known = {spec: self._times.seconds(spec) for spec in self._specs}
        self._predictor.fit({spec: entry for spec, entry in known.items() if entry is not None})
        self._points = {config: self._timed(entry) for config, entry in self._points.items()}
        self.original = self._points[self.original.config]


@attrs.frozen(kw_only=True)
class Bound:
    """The smallest score that a network must have to be accepted.

    Attributes:
        score: Score of the original network.
        multiply_adds: Number of multiply-adds of the original network.
        proportional: Whether the bound is proportional to a network's multiply-adds (see
            ``NetworkScore``).
        tolerance: The share of the original's score by which a network's score may be below the
            bound.
    """

    score: float
    multiply_adds: int
    proportional: bool
    tolerance: float = 0.0

    def at(self, multiply_adds: int) -> float:
        """The smallest accepted score of a network with ``multiply_adds`` multiply-adds."""
        least = self.score - self.tolerance * abs(self.score)
        if not self.proportional:
            return least
        # The division comes first, so that its result is exactly 1 if the score is the number of
        # multiply-adds.
        return least / self.multiply_adds * multiply_adds


Configs = NDArray[np.int32]

_RANDOM = 0.25
"""Share of a generation that is drawn at random."""
_MOST_MUTATIONS = 4
"""Largest number of knobs that are changed in a child."""


class Evolution:
    """Proposes networks by constrained evolutionary search (Deb et al. 2002)."""

    def __init__(self, space: DesignSpace, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self._seen: set[bytes] = set()

    def propose(
        self, configs: Configs, losses: NDArray[np.float64], legal: NDArray[np.bool_], count: int
    ) -> Configs:
        """New networks (at most ``count``, knobs) from those (n, knobs) with their losses."""
        self._seen |= {row.tobytes() for row in np.ascontiguousarray(configs, np.int32)}
        proposed: list[NDArray[np.int32]] = []
        for _ in range(16):
            missing = count - len(proposed)
            if not missing:
                break
            for row in self._drawn(configs, losses, legal, missing):
                key = row.tobytes()
                if key not in self._seen and len(proposed) < count:
                    self._seen.add(key)
                    proposed.append(row)
        return np.array(proposed, np.int32).reshape(-1, len(self._space.knobs))

    def _drawn(
        self, configs: Configs, losses: NDArray[np.float64], legal: NDArray[np.bool_], count: int
    ) -> Configs:
        parents = configs[legal][pareto_mask(losses[legal])] if legal.any() else configs[:0]
        fresh = count if len(parents) < 2 else max(1, round(_RANDOM * count))  # noqa: PLR2004
        drawn = self._space.sample(fresh, self._rng)
        # Networks that change only a few layers are between the original and a random network.
        share = self._rng.random((len(drawn), 1))
        sparse = np.where(self._rng.random(drawn.shape) < share, drawn, 0).astype(np.int32)
        if fresh == count:
            return self._space.canonical(sparse)
        pairs = self._rng.integers(0, len(parents), (count - fresh, 2))
        crossed = self._rng.random((len(pairs), parents.shape[1])) < 0.5  # noqa: PLR2004
        children = np.where(crossed, parents[pairs[:, 0]], parents[pairs[:, 1]])
        moves = self._rng.integers(1, _MOST_MUTATIONS + 1, len(children))
        for step in range(_MOST_MUTATIONS):
            moved = self._space.mutate(children, self._rng)
            children = np.where((moves > step)[:, None], moved, children).astype(np.int32)
        return np.concatenate([sparse, children])


_THROUGHPUT = 5e10
"""Assumed multiply-adds per second and bytes per second, to order networks before any
measurement."""
_CALL_SECONDS = 2e-6
"""Assumed seconds of even the smallest kernel."""
_RIDGE = 1.0
_FLOAT_BYTES = 4


def estimated_seconds(spec: Spec) -> float:
    """An operator's seconds at an assumed throughput, before any measurement."""
    touched = np.prod(spec.input) + np.prod(spec.result_shape) + np.prod(spec.filter_shape)
    return float(
        spec.flop / 2.0 / _THROUGHPUT + _FLOAT_BYTES * touched / _THROUGHPUT + _CALL_SECONDS
    )


def features(spec: Spec) -> NDArray[np.float64]:
    """The numbers from which an operator's speed is predicted, shape (10,)."""
    outputs, channels, *kernel = spec.filter_shape
    rows, columns = spec.result_shape[2:]
    strided = max(spec.strides) > 1
    taps = int(np.prod(kernel))
    tiled = taps > 1 and not strided and spec.group_count == 1
    return np.array(
        [
            1.0,
            np.log2(channels),
            np.log2(outputs // spec.group_count),
            np.log2(outputs),
            np.log2(rows * columns),
            np.log2(taps),
            float(strided),
            float(spec.group_count > 1),
            float(channels == 1),
            float(tiled),
        ]
    )


class OperatorPredictor:
    """Predicts operators' seconds: ridge regression of log(seconds / ``estimated_seconds``)."""

    def __init__(self) -> None:
        self._weights = np.zeros(10)

    def fit(self, measured: Mapping[Spec, float]) -> None:
        """Learn from the finite times among the measured operators."""
        finite = {spec: seconds for spec, seconds in measured.items() if np.isfinite(seconds)}
        if not finite:
            return
        rows = np.stack([features(spec) for spec in finite])
        wanted = np.array(
            [np.log(seconds / estimated_seconds(spec)) for spec, seconds in finite.items()]
        )
        penalty = _RIDGE * np.eye(rows.shape[1])
        penalty[0, 0] = 1e-6  # a common factor is learnt at once
        self._weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ wanted)

    def seconds(self, spec: Spec) -> float:
        """Predict the seconds of one operator."""
        return estimated_seconds(spec) * float(
            np.exp(np.clip(features(spec) @ self._weights, -5.0, 5.0))
        )
