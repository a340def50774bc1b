"""The part of a batch in which nobody builds: kernels are checked and timed, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from chameleon_core.measurement import Measurement

from chameleon_runners.batch_state import BatchState, drop
from chameleon_runners.candidates import Candidate
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.local_context import LocalContext
from chameleon_runners.worker.protocol import Message


class TimingPhase:
    """Checks and times what is built, then the promising ones again, in turn.

    Args:
        context: what it is done with.
        deadlines: the task's time-outs.
        state: where the candidates are.
        best_seconds: the task's best cost so far.
    """

    def __init__(
        self, *, context: LocalContext, deadlines: Deadlines, state: BatchState, best_seconds: float
    ) -> None:
        self._context = context
        self._deadlines = deadlines
        self._state = state
        self._best = best_seconds

    def first_timings(self) -> Iterator[Measurement]:
        """Check and time everything that is built; hand out what need not be timed again."""
        state = self._state
        while state.built and not state.stopped:
            candidate = state.built.popleft()
            worker = candidate.worker
            if worker is None or not state.still_there(worker):
                state.pending.append(candidate)
                continue
            message = self._context.measure_command(
                candidate, best=self._best, cores=self._context.pool.cores[:1]
            )
            event = self._context.clock(worker, candidate, message, self._deadlines.run(self._best))
            if event is None:
                return
            if event.end is not None:
                yield from state.lost(event)
            elif event.reply is not None:
                yield from self._take_timing(candidate, event.reply)

    def rounds(self) -> Iterator[Measurement]:
        """Time the promising candidates again, in turn."""
        state = self._state
        yield from self._hand_out(state.rounds.play(self._time_again, lambda: state.stopped))

    def _take_timing(self, candidate: Candidate, reply: Message) -> Iterator[Measurement]:
        candidate.run_seconds = reply["elapsed"]
        worker = candidate.worker
        if reply["status"] != "ok":
            log = worker.log if worker is not None else ""
            drop(candidate)
            yield candidate.failed_reply(reply, log)
            return
        self._deadlines.ran(candidate.run_seconds)
        candidate.repeats = tuple(reply["seconds"])
        candidate.number = reply["number"]
        candidate.error = reply["error"]
        self._best = min(self._best, float(np.median(candidate.repeats)))
        yield from self._hand_out(self._state.rounds.admit(candidate))

    @staticmethod
    def _hand_out(candidates: Iterable[Candidate]) -> Iterator[Measurement]:
        """Yield the measurements of candidates that are done with, and free their kernels."""
        for candidate in candidates:
            drop(candidate)
            yield candidate.failure or candidate.succeeded()

    def _time_again(self, candidate: Candidate) -> None:
        """One more turn of a leader, unless the worker that held it is gone."""
        worker = candidate.worker
        if worker is None or not self._state.still_there(worker):
            candidate.worker = None
            return
        message = self._context.turn_command(candidate)
        event = self._context.clock(worker, candidate, message, self._context.options.run_timeout)
        if event is None:
            return
        if event.end is not None:
            candidate.worker = None
            # It ran before and does not now: a failure, unless somebody else killed its worker.
            if not event.end.from_outside:
                candidate.failure = candidate.ended(event.end, building=False)
        elif event.reply is not None and event.reply["status"] == "ok":
            candidate.take_turn(event.reply["seconds"])
            candidate.run_seconds += event.reply["elapsed"]
        elif event.reply is not None:
            candidate.failure = candidate.failed_reply(event.reply, worker.log)
