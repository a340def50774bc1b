"""The promising candidates of a batch, timed again in turn until their ranking is believable.

A first timing takes a few hundredths of a second, which one bad stretch of the machine can spoil
altogether. So nothing is decided by it alone: every candidate that is not hopeless is looked at
once more after the whole batch was timed, and those near the best go on, a turn of a few
short repeats for each in every round, so that a drift of the machine meets all of them alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.workers import Worker
from chameleon_runners.local.disturbance import Looks
from chameleon_runners.local.options import LocalOptions
from chameleon_runners.timing import settled

_LEAST_ROUNDS = 14
"""Rounds of the leaders, at least: one bad stretch must not decide between them."""

_LENIENCE = (40.0, 40.0, 8.0, 3.0)
"""What the margin of the leaders is multiplied with after the first rounds, in which a reading
may still be a disturbed one: whoever shares a core with somebody for a moment takes twice as
long, and must not be retired for it."""


class Rounds:
    """Candidates of one batch whose kernels are kept to be timed again.

    Args:
        options: the runner's options.
        best_seconds: the best cost before this batch; infinity where there is none.

    Attributes:
        held: the candidates, the fastest first.
        looks: the costs of those that had turns and left.
    """

    def __init__(self, options: LocalOptions, best_seconds: float) -> None:
        self._options = options
        self._best = best_seconds
        self.held: list[CandidateRun] = []
        self.looks: list[Looks] = []

    def admit(self, candidate: CandidateRun) -> list[CandidateRun]:
        """Add a candidate that was timed; returns those that need not be timed again.

        They are the hopeless ones, and the slowest where more are promising than may be held.
        """
        self._best = min(self._best, candidate.fastest)
        self.held.append(candidate)
        self.held.sort(key=lambda held: held.fastest)
        limit = self._options.slow_factor * self._best
        stay = [held for held in self.held if held.fastest <= limit][: self._options.leaders]
        return self._keep(stay)

    def give_up(self, worker: Worker) -> list[CandidateRun]:
        """Hold on to the faster half only of what a worker holds; returns the others, one at least.

        Args:
            worker: lacks memory.
        """
        there = [held for held in self.held if held.worker is worker]
        slower = {id(held) for held in there[len(there) // 2 :]}
        return self._keep([held for held in self.held if id(held) not in slower])

    def play(
        self, time_again: Callable[[CandidateRun], None], stopped: Callable[[], bool]
    ) -> Iterator[CandidateRun]:
        """Time what is held in turn, and hand each candidate out when it is known well enough.

        Args:
            time_again: appends the repeats of a turn to the candidate's, or sets its failure.
            stopped: whether to end early.
        """
        generator = np.random.default_rng(0)
        least = min(_LEAST_ROUNDS, self._options.leader_rounds)
        done = 0
        while done < self._options.leader_rounds and not stopped():
            asked = self.held if done < least else self._unsettled()
            if not asked:
                break
            for place in generator.permutation(len(asked)).tolist():
                if stopped():
                    break
                time_again(asked[place])
            done += 1
            yield from self._keep([held for held in self.held if held.failure is None])
            lenience = _LENIENCE[done - 1] if done <= len(_LENIENCE) else 1.0
            yield from self._retire(lenience * self._options.leader_margin)
        self._note(self.held)
        for candidate in self.held:
            # With fewer turns than the others it would not compare with them.
            if candidate.turns < min(least, done):
                candidate.pool()
        yield from self._keep([])

    def _unsettled(self) -> list[CandidateRun]:
        """Those held whose repeats do not agree yet."""
        spread = self._options.leader_spread
        return [held for held in self.held if not settled(held.again, spread)]

    def _retire(self, margin: float) -> Iterator[CandidateRun]:
        """Hand out candidates that turned out to be slower than the best by more than a margin."""
        self._best = min([self._best, *(held.fastest for held in self.held)])
        limit = (1.0 + margin) * self._best
        retired = self._keep([held for held in self.held if held.fastest <= limit])
        self._note(retired)
        for candidate in retired:
            candidate.pool()
        yield from retired

    def _note(self, candidates: Iterable[CandidateRun]) -> None:
        self.looks += [
            (statistics.median(candidate.repeats), candidate.succeeded().cost)
            for candidate in candidates
            if candidate.turns
        ]

    def _keep(self, stay: list[CandidateRun]) -> list[CandidateRun]:
        """Hold on to some candidates only; returns the others."""
        kept = {id(candidate) for candidate in stay}
        gone = [candidate for candidate in self.held if id(candidate) not in kept]
        self.held = [candidate for candidate in self.held if id(candidate) in kept]
        return gone
