"""The contenders of a final comparison, built for devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import attrs
from chameleon_core.task import Task

from chameleon_runners.batch import stage_key
from chameleon_runners.contenders import ContenderState, no_reference
from chameleon_runners.fleet.dispatch import FleetContext
from chameleon_runners.fleet.remote_candidate import RemoteCandidate
from chameleon_runners.fleet.workers import Worker, WorkerEvent
from chameleon_runners.preparation import open_command
from chameleon_runners.worker.protocol import Message


@attrs.define(kw_only=True, eq=False)
class FleetContender(ContenderState[RemoteCandidate]):
    """A contender that is built for devices.

    Attributes:
        built: whether its artifact is there.
    """

    built: bool = False


class ComparisonBuilds:
    """Computes the reference if nobody has yet, and has every contender exported.

    Args:
        task: the task.
        entries: the contenders.
        context: what it is done with.
        turn: waits until something happens; False when all is to stop.
    """

    def __init__(
        self,
        task: Task,
        entries: Sequence[FleetContender],
        *,
        context: FleetContext,
        turn: Callable[[], bool],
    ) -> None:
        self._task = task
        self._entries = entries
        self._context = context
        self._turn = turn
        self._waiting: deque[FleetContender] = deque()
        self._working: set[Worker] = set()

    def run(self) -> None:
        """Build all that can be built; a failure is the contender's result.

        Raises:
            PluginError: nobody can compute the expected outputs.
        """
        try:
            if not self._context.reference.ready:
                self._compute_reference()
            self._waiting.extend(self._entries)
            while self._waiting or self._working:
                self._employ()
                if not self._turn():
                    return
        finally:
            for worker in self._working:
                self._context.builders.end(worker)

    def _key(self, entry: FleetContender) -> str:
        return f"{entry.contender.variant}|{stage_key(entry.contender.stage, self._task)}"

    def _open(
        self, worker: Worker, entry: FleetContender, then: Callable[[WorkerEvent], None]
    ) -> None:
        context, contender = self._context, entry.contender
        command = open_command(
            contender.stage,
            self._task,
            threads=context.options.threads,
            variant=contender.variant,
        )
        context.builders.submit(worker, then, command, context.options.start_timeout)

    # -- the reference ----------------------------------------------------------------------

    def _compute_reference(self) -> None:
        """Let the first contender that can do it compute the expected outputs."""
        reference, options = self._context.reference, self._context.options
        reasons = []
        for entry in self._entries:
            command: Message = {"command": "reference", "path": str(reference.path)}
            event = self._ask_builder(entry, command, options.reference_timeout)
            if event is None:
                return
            if event.reply is not None and event.reply["status"] == "ok":
                reference.tolerance = event.reply["tolerance"]
                reference.ready = True
                return
            words = event.end.explain() if event.end is not None else ""
            words = event.reply["message"] if event.reply is not None else words
            reasons.append(f"{entry.contender.name}: {words}")
        raise no_reference(self._task.name, reasons)

    def _ask_builder(
        self, entry: FleetContender, command: Message, timeout: float
    ) -> WorkerEvent | None:
        """Open a builder for a contender and have it do something; None when all stops."""
        builders = self._context.builders
        while (worker := builders.take()) is None:
            builders.fill(1)
            if not self._turn():
                return None
        self._working.add(worker)
        events: list[WorkerEvent] = []
        if worker.opened != self._key(entry):
            self._open(worker, entry, events.append)
            while not events:
                if not self._turn():
                    return None
            worker.opened = self._key(entry) if _ok(events[-1]) else None
        if not events or _ok(events[-1]):
            events.clear()
            builders.submit(worker, events.append, command, timeout)
            while not events:
                if not self._turn():
                    return None
        self._working.discard(worker)
        builders.give_back(worker)
        return events[-1]

    # -- artifacts --------------------------------------------------------------------------

    def _employ(self) -> None:
        builders = self._context.builders
        builders.fill(len(self._waiting) + len(self._working))
        while self._waiting and (worker := builders.take()) is not None:
            self._working.add(worker)
            entry = self._waiting.popleft()
            if worker.opened != self._key(entry):
                self._open(worker, entry, partial(self._opened, entry))
            else:
                self._export(worker, entry)

    def _opened(self, entry: FleetContender, event: WorkerEvent) -> None:
        if _ok(event):
            event.worker.opened = self._key(entry)
            self._export(event.worker, entry)
        else:
            event.worker.opened = None
            self._refused(entry, event)

    def _export(self, worker: Worker, entry: FleetContender) -> None:
        worker.built += 1
        command: Message = {
            "command": "export",
            "config": entry.candidate.config,
            "artifact": str(entry.candidate.artifact),
        }
        timeout = self._context.options.build_timeout
        self._context.builders.submit(worker, partial(self._exported, entry), command, timeout)

    def _exported(self, entry: FleetContender, event: WorkerEvent) -> None:
        if not _ok(event):
            self._refused(entry, event)
            return
        entry.built = True
        entry.candidate.build_seconds = event.seconds
        self._give_back(event.worker)

    def _refused(self, entry: FleetContender, event: WorkerEvent) -> None:
        """A contender was not built: once more if somebody else ended its builder."""
        candidate, end, reply = entry.candidate, event.end, event.reply
        candidate.build_seconds = event.seconds
        candidate.discard()
        log = event.worker.log
        self._give_back(event.worker)
        if (
            end is not None
            and end.from_outside
            and candidate.losses < self._context.options.retries
        ):
            candidate.losses += 1
            self._waiting.append(entry)
        elif end is not None:
            entry.result = candidate.ended(end, building=True)
        elif reply is not None:
            entry.refuse(reply, log)

    def _give_back(self, worker: Worker) -> None:
        self._working.discard(worker)
        self._context.builders.give_back(worker)


def _ok(event: WorkerEvent) -> bool:
    return event.reply is not None and event.reply["status"] == "ok"
