"""The contenders of a final comparison, whichever way they are run, and who has the next turn."""

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
"""Contenders this much slower than the fastest are timed in a few rounds only."""

C = TypeVar("C", bound=CandidateRun)


@attrs.define(kw_only=True, eq=False)
class ContenderState(Generic[C]):
    """A contender and what became of it.

    Attributes:
        contender: the contender.
        candidate: its configuration on its way.
        built: whether what is timed of it is there.
        result: its measurement, once it has failed for good.
    """

    contender: Contender
    candidate: C
    built: bool = False
    result: Measurement | None = None

    def refuse(self, reply: Message, log: str = "") -> None:
        """Take in a reply that says why it was not built.

        Args:
            reply: of the worker.
            log: the end of what the worker printed.
        """
        if reply["status"] == "failed":
            self.result = self.candidate.failed_reply(reply, log)
        else:
            self.result = self.candidate.failed(FailureKind.BUILD_ERROR, reply["message"])

    @property
    def measurement(self) -> Measurement:
        """Its result in the comparison."""
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
    """The contenders whose turn it is, one after the other.

    The order is new in every round, so that no contender always runs after the same neighbour.
    Those that are much too slow have few turns: more repeats would add nothing.

    Args:
        racing: the contenders that may still be timed; asked again each time.
        rounds: turns of each at most.
        another: whether there is to be one more round after so many; asked before each.
        in_time: whether there is time left; without, those that are much too slow have one turn.
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
