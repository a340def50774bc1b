"""The final comparison: every contender in a process of its own, timed in turn.

Two modules timed in one process disturb each other (allocators, thread pools), so each
contender has a worker to itself; only one of them runs at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import attrs
from chameleon_core.measurement import Measurement
from chameleon_core.stages import Contender
from chameleon_core.task import Task

from chameleon_runners.candidates import Candidate
from chameleon_runners.contenders import ContenderState, no_reference, turns
from chameleon_runners.local_context import LocalContext
from chameleon_runners.local_pool import Event
from chameleon_runners.preparation import open_command
from chameleon_runners.worker.protocol import Message


class _Step(IntEnum):
    """How far a contender's worker has come; the value is what it did last."""

    STARTED = 0
    OPENED = 1
    BUILT = 2
    CHECKED = 3


@attrs.define(kw_only=True, eq=False)
class _LocalContender(ContenderState[Candidate]):
    """A contender that has a worker, whose place in the pool is its candidate's slot.

    Attributes:
        step: how far its worker has come.
    """

    step: _Step = _Step.STARTED


class Comparison:
    """Compares contenders of one task.

    Args:
        task: the task.
        contenders: who takes part.
        context: what they are compared with; as many workers as there are contenders, closed by
            the caller.
    """

    def __init__(
        self, task: Task, contenders: Sequence[Contender], *, context: LocalContext
    ) -> None:
        self._task = task
        self._context = context
        self._pool = context.pool
        self._options = context.options
        self._reference = context.reference
        self._interrupted = False
        self._entries = [
            _LocalContender(
                contender=contender,
                candidate=Candidate(config=tuple(contender.config), slot=place),
            )
            for place, contender in enumerate(contenders)
        ]

    def interrupt(self) -> None:
        """End after the repeat in flight."""
        self._interrupted = True
        self._pool.wake()

    @property
    def _stopped(self) -> bool:
        return self._interrupted or self._pool.closed

    def run(self) -> list[Measurement]:
        """One measurement per contender, in order; a failure is a measurement."""
        self._prepare()
        if not self._reference.ready and any(entry.result is None for entry in self._entries):
            self._compute_reference()
        for entry in self._entries:
            self._check(entry)
        for entry in turns(lambda: self._entries, self._options.compare_rounds):
            self._repeat(entry)
        return [entry.measurement for entry in self._entries]

    # -- steps ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Open and build every contender that is not lost, all at once."""
        while not self._stopped:
            self._pool.fill(len(self._entries))
            todo = [e for e in self._entries if e.result is None and e.step < _Step.BUILT]
            for entry in todo:
                worker = self._pool.at(entry.candidate.slot)
                if worker is not None and worker.idle and worker.initialised:
                    command, timeout = self._next_command(entry)
                    worker.submit(entry, command, timeout)
            if not todo:
                return
            for event in self._pool.wait():
                self._advance(event)

    def _next_command(self, entry: _LocalContender) -> tuple[Message, float]:
        if entry.step is _Step.STARTED:
            contender = entry.contender
            command = open_command(
                contender.stage,
                self._task,
                threads=self._context.threads,
                variant=contender.variant,
            )
            return command, self._options.start_timeout
        slot = entry.candidate.slot
        build = {"command": "build", "slot": slot, "config": entry.candidate.config}
        return build, self._options.build_timeout

    def _advance(self, event: Event) -> None:
        if self._pool.closed:
            return
        if event.end is not None:
            lost = self._pool.position(event.worker)
            self._lost(self._entries[lost], event)
        elif event.reply is not None and isinstance(event.tag, _LocalContender):
            entry = event.tag
            entry.step = _Step(entry.step + 1)
            if event.reply["status"] != "ok":
                entry.refuse(event.reply)
            entry.candidate.build_seconds += event.reply["elapsed"]

    def _lost(self, entry: _LocalContender, event: Event) -> None:
        """A contender's worker ended: start over if it was killed from outside."""
        if entry.result is not None or event.end is None:
            return
        candidate = entry.candidate
        if event.end.from_outside and candidate.losses < self._options.retries:
            candidate.losses += 1
            candidate.build_seconds = 0.0
            entry.step = _Step.STARTED
        else:
            building = entry.step < _Step.BUILT
            entry.result = candidate.ended(event.end, building=building)

    def _compute_reference(self) -> None:
        """Let the first contender that can do it compute the expected outputs."""
        reasons = []
        for entry in self._entries:
            reply = self._ask(entry, self._reference_command, self._options.reference_timeout)
            if self._stopped:
                return
            if reply is not None and reply["status"] == "ok":
                self._reference.tolerance = reply["tolerance"]
                self._reference.ready = True
                return
            if reply is not None:
                reasons.append(f"{entry.contender.name}: {reply['message']}")
        if any(entry.result is None for entry in self._entries):
            raise no_reference(self._task.name, reasons)

    def _reference_command(self, _entry: _LocalContender) -> Message:
        return {"command": "reference", "path": str(self._reference.path)}

    def _check(self, entry: _LocalContender) -> None:
        def command(asked: _LocalContender) -> Message:
            return self._context.measure_command(asked.candidate, best=None, cores=[])

        reply = self._ask(entry, command, self._options.reference_timeout)
        if reply is None:
            return
        if reply["status"] == "ok":
            entry.candidate.error = reply["error"]
            entry.candidate.number = reply["number"]
            entry.candidate.run_seconds += reply["elapsed"]
            entry.step = _Step.CHECKED
        else:
            entry.result = entry.candidate.failed_reply(reply, "")

    def _repeat(self, entry: _LocalContender) -> None:
        """One turn of a contender; one that lost its worker is built and checked again."""

        def command(asked: _LocalContender) -> Message:
            return self._context.turn_command(asked.candidate)

        reply = self._ask(entry, command, self._options.reference_timeout, clock=True)
        if reply is None:
            return
        if reply["status"] != "ok":
            entry.result = entry.candidate.failed_reply(reply, "")
            return
        entry.candidate.run_seconds += reply["elapsed"]
        entry.candidate.take_turn(reply["seconds"])

    # -- talking to one worker --------------------------------------------------------------

    def _ask(
        self,
        entry: _LocalContender,
        command: Callable[[_LocalContender], Message],
        timeout: float,
        *,
        clock: bool = False,
    ) -> Message | None:
        """The reply of a contender's worker; None where the contender is lost or all stops."""
        ask = self._context.clock if clock else self._context.ask
        while entry.result is None and not self._stopped:
            if entry.step < _Step.BUILT:
                self._prepare()
                continue
            worker = self._pool.at(entry.candidate.slot)
            if worker is None or not worker.idle:
                entry.step = _Step.STARTED
                continue
            event = ask(worker, entry, command(entry), timeout)
            if event is None:
                return None
            if event.end is None:
                return event.reply
            self._lost(entry, event)
        return None
