"""The search of ``chameleon transform``: propose, judge, measure what is promising, again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ConfigError
from chameleon_core.pipeline.transform import Transformation
from numpy.typing import NDArray

from chameleon_transforms.contract import NetworkScore
from chameleon_transforms.nest.program import Program
from chameleon_transforms.nest.tasks import Spec, specs_of
from chameleon_transforms.network.space import AS_IS, Candidate, NetworkSpace
from chameleon_transforms.scores.bound import Bound
from chameleon_transforms.scores.judge import Judge
from chameleon_transforms.search.evolution import Configs, Evolution
from chameleon_transforms.search.front import Point, front
from chameleon_transforms.search.latency import OperatorTimes
from chameleon_transforms.search.predictor import OperatorPredictor

log = structlog.get_logger()

_GENERATION = 32
"""Networks that are judged between two looks at the front."""


class TransformSearch:
    """Searches networks of one space.

    Args:
        space: which networks there are.
        judge: runs them at their initialisation.
        scores: by name; the first one decides.
        times: measures operators, or None where latencies are predicted alone.
        options: the section ``transform``.
        batch: samples of an inference whose latency counts.
        seed: of everything that is drawn.
    """

    def __init__(
        self,
        space: NetworkSpace,
        judge: Judge,
        scores: Mapping[str, NetworkScore],
        times: OperatorTimes | None,
        options: Transformation,
        *,
        batch: int,
        seed: int,
    ) -> None:
        self._space = space
        self._judge = judge
        self._scores = scores
        self._decides = next(iter(scores))
        self._times = times
        self._measures = times is not None and options.per_round > 0
        self._options = options
        self._batch = batch
        self._evolution = Evolution(space.design, np.random.default_rng([seed, 17]))
        self._predictor = OperatorPredictor()
        self._specs: set[Spec] = set()
        self._bound = self._of_original()
        (self.original,) = self._judged([space.original])
        self._points: dict[tuple[int, ...], Point] = {self.original.config: self.original}

    @property
    def points(self) -> Sequence[Point]:
        """All that were judged, the original first."""
        return tuple(self._points.values())

    def run(self, progress: Callable[[int, int], None] = lambda *_: None) -> list[Point]:
        """Judge as many candidates as the options say; returns the front, fastest first.

        Args:
            progress: called with how many were judged, and of how many.
        """
        total, rounds = self._options.candidates, self._options.rounds
        self._measure([self.original])
        self._learn()
        for turn in range(rounds):
            until = total * (turn + 1) // rounds
            while len(self._points) - 1 < until:
                fresh = self._propose(min(_GENERATION, until - len(self._points) + 1))
                if not len(fresh):
                    log.info("space_is_exhausted", judged=len(self._points) - 1)
                    break
                for point in self._judged([tuple(row) for row in fresh.tolist()]):
                    self._points[point.config] = point
                progress(len(self._points) - 1, total)
            self._measure(self._promising())
        return self.front()

    def front(self) -> list[Point]:
        """The points that none dominates: measured ones, or predicted where nothing measures."""
        return front(self.points, self._decides)

    # -- judging ------------------------------------------------------------------------------

    def _of_original(self) -> Bound:
        """What the original's score asks of the others."""
        original, score = self._space.candidate(self._space.original), self._scores[self._decides]
        # As the others are judged: on another number of threads the last bits may differ.
        (scored,) = self._judge.scored([original], {self._decides: score})
        found = scored[self._decides]
        if not np.isfinite(found):
            raise ConfigError(
                f"the original's score {self._decides!r} is {found}",
                hint="See that the network's outputs on the data are finite.",
            )
        return Bound(
            score=found,
            multiply_adds=original.multiply_adds,
            proportional=score.proportional,
            tolerance=self._options.tolerance,
        )

    def _judged(self, configs: Sequence[tuple[int, ...]]) -> list[Point]:
        """Networks with their scores, and their times as far as they are known."""
        candidates = [self._space.candidate(config) for config in configs]
        scored = self._judge.scored(candidates, self._scores)
        return [
            self._point(config, candidate, scores)
            for config, candidate, scores in zip(configs, candidates, scored, strict=True)
        ]

    def _point(
        self, config: tuple[int, ...], candidate: Candidate, scores: Mapping[str, float]
    ) -> Point:
        programs = candidate.programs.values()
        self._specs.update(spec for one in programs for spec in self._operators(one))
        point = Point(
            config=config,
            seconds=None,
            predicted_seconds=0.0,
            scores=scores,
            parameters=sum(one.parameters for one in programs),
            multiply_adds=candidate.multiply_adds,
            accepted=bool(scores[self._decides] >= self._bound.at(candidate.multiply_adds)),
            transforms={n: label for n, label in candidate.labels.items() if label != AS_IS},
            channels=self._fewer(candidate),
        )
        return self._timed(point, candidate)

    def _fewer(self, candidate: Candidate) -> dict[str, int]:
        full = {group.name: group.channels for group in self._space.groups}
        return {name: n for name, n in candidate.channels.items() if n < full[name]}

    def _operators(self, program: Program) -> Sequence[Spec]:
        return specs_of(program, batch=self._batch)

    def _timed(self, point: Point, candidate: Candidate | None = None) -> Point:
        """A point with its seconds as far as they are known now."""
        candidate = candidate or self._space.candidate(point.config)
        specs = [spec for one in candidate.programs.values() for spec in self._operators(one)]
        known = [self._known(spec) for spec in specs]
        filled = [
            self._predictor.seconds(spec) if seconds is None else seconds
            for spec, seconds in zip(specs, known, strict=True)
        ]
        whole = not self._measures or all(seconds is not None for seconds in known)
        predicted = float(sum(filled))
        return attrs.evolve(
            point, seconds=predicted if whole else None, predicted_seconds=predicted
        )

    def _known(self, spec: Spec) -> float | None:
        return None if self._times is None else self._times.seconds(spec)

    # -- proposing and measuring ---------------------------------------------------------------

    def _propose(self, count: int) -> Configs:
        points = list(self._points.values())
        configs = np.array([one.config for one in points], np.int32)
        legal = np.array([one.accepted for one in points])
        return self._evolution.propose(configs, self._losses(points), legal, count)

    def _losses(self, points: Sequence[Point]) -> NDArray[np.float64]:
        rows = [[one.predicted_seconds, -one.scores[self._decides]] for one in points]
        return np.array(rows, np.float64)

    def _promising(self) -> list[Point]:
        """Accepted points that were not measured, those that seem fastest."""
        found = [one for one in self._points.values() if one.accepted and one.seconds is None]
        found.sort(key=lambda one: one.predicted_seconds)
        return found[: self._options.per_round]

    def _measure(self, points: Sequence[Point]) -> None:
        """Measure the operators of some points, and tell all points of it."""
        if self._times is None or not self._measures or not points:
            return
        wanted = [
            spec
            for point in points
            for program in self._space.candidate(point.config).programs.values()
            for spec in self._operators(program)
        ]
        self._times.measure(wanted)
        self._learn()

    def _learn(self) -> None:
        """Predict from all that is known, and tell all points of it."""
        known = {spec: self._known(spec) for spec in self._specs}
        self._predictor.fit({spec: one for spec, one in known.items() if one is not None})
        self._points = {config: self._timed(one) for config, one in self._points.items()}
        self.original = self._points[self.original.config]
