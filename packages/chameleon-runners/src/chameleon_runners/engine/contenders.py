"""The contenders of a final comparison, and the order in which they are timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import attrs
import numpy as np
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.worker.protocol import Message

_FEW_ROUNDS = 3
_HOPELESS = 3.0
"""Contenders slower than the fastest by more than this factor are timed in few rounds."""

C = TypeVar("C", bound=CandidateRun)


@attrs.define(kw_only=True, eq=False)
class ContenderState(Generic[C]):
    """The state of a contender during a comparison.

    Attributes:
        contender: The contender.
        candidate: The state of the contender's configuration.
        built: Whether the contender's kernel is built.
        result: The contender's measurement if it has failed; None otherwise.
    """

    contender: Contender
    candidate: C
    built: bool = False
    result: Measurement | None = None

    def refuse(self, reply: Message, log: str = "") -> None:
        """Record that the contender could not be built, from the worker's reply.

        Args:
            reply: The worker's reply.
            log: The end of the worker's output.
        """
        if reply["status"] == "failed":
            self.result = self.candidate.failed_reply(reply, log)
        else:
            self.result = self.candidate.failed(FailureKind.BUILD_ERROR, reply["message"])

    @property
    def measurement(self) -> Measurement:
        """The contender's result in the comparison."""
        if self.result is not None:
            return self.result
        if self.candidate.turns:
            return self.candidate.succeeded()
        return self.candidate.failed(FailureKind.RUN_ERROR, "the comparison was interrupted")


S = TypeVar("S", bound=ContenderState[Any])


def turns(
    racing: Callable[[], Sequence[S]],
    rounds: int,
    *,
    another: Callable[[int], bool] = lambda _done: True,
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[S]:
    """Yield the contenders of a comparison in the order in which they are timed, round by round.

    Each round has a new random order, so that no contender always runs after the same other one.
    Contenders that are much slower than the fastest get few turns.

    Args:
        racing: A function that returns the contenders that have not failed. It is called again
            before each turn.
        rounds: The largest number of rounds.
        another: A function that is called before each round with the number of rounds so far. It
            returns whether to run another round.
        in_time: A function that returns whether there is time left. If there is none, much slower
            contenders get only one turn.
    """
    generator = np.random.default_rng(0)
    for done in range(rounds):
        if not another(done):
            return
        present = racing()
        for index in generator.permutation(len(present)).tolist():
            few = not done or (done < _FEW_ROUNDS and in_time())
            if few or not _hopeless(present[index], racing()):
                yield present[index]


def _hopeless(contender: S, racing: Sequence[S]) -> bool:
    own: float = contender.candidate.fastest
    best: float = min((other.candidate.fastest for other in racing), default=own)
    return own > _HOPELESS * best
