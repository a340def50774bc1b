"""The final comparison on one machine: every contender in a process of its own.

Two modules timed in one process disturb each other (allocators, thread pools), so each
contender has a worker to itself; only one of them runs at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_core.stages import Contender
from chameleon_core.task import Task

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.comparison import Comparison
from chameleon_runners.engine.contenders import ContenderState
from chameleon_runners.local.context import LocalContext
from chameleon_runners.worker.protocol import Message


class ProcessComparison(Comparison[CandidateRun]):
    """Compares contenders of one task in the workers that built them.

    Args:
        task: the task.
        contenders: who takes part.
        context: what they are compared with; as many workers as there are contenders, closed by
            the caller.
    """

    _context: LocalContext

    def __init__(
        self, task: Task, contenders: Sequence[Contender], *, context: LocalContext
    ) -> None:
        entries = [
            ContenderState(
                contender=contender,
                candidate=CandidateRun(config=tuple(contender.config), slot=number),
            )
            for number, contender in enumerate(contenders)
        ]
        super().__init__(task, entries, context=context, keep=True)

    def _time(self) -> None:
        self._time_in_turn()

    def _answer(
        self, entry: ContenderState[CandidateRun], message: Message, *, timed: bool = False
    ) -> Message | None:
        context, candidate = self._context, entry.candidate
        ask = context.clock if timed else context.ask
        while entry.result is None:
            self._go_on()
            # One that lost its worker to somebody else is built again.
            if candidate.worker is None or not context.pool.lives(candidate.worker):
                entry.built = False
                self._build()
                continue
            event = ask(candidate.worker, message, context.options.reference_timeout)
            reply = event.reply
            if reply is not None and reply["status"] == "ok":
                candidate.run_seconds += event.seconds
                return reply
            if reply is not None:
                entry.result = candidate.failed_reply(reply, "")
            elif event.end is not None and not candidate.loses(event.end, context.retries):
                entry.result = candidate.ended(event.end, building=False)
        return None
