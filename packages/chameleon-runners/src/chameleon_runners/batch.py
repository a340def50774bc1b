"""One job on its way through the workers: built in parallel, timed alone, leaders timed again.

Workers build while nobody looks at a clock; then one kernel at a time is checked and timed
while nobody builds. A worker that dies takes one candidate with it, the one at work: kernels
it held besides are built again elsewhere.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator

import attrs
import numpy as np
from chameleon_core.errors import PluginError
from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_core.task import Task

from chameleon_runners.candidates import Candidate
from chameleon_runners.crew import Crew, Event
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.options import LocalOptions
from chameleon_runners.process import EndReason, WorkerProcess
from chameleon_runners.references import Reference
from chameleon_runners.rounds import Rounds
from chameleon_runners.stage_errors import raise_stage_error
from chameleon_runners.timing import TimingPolicy
from chameleon_runners.worker.protocol import Message

_MIB = 1 << 20
_OPEN_ATTEMPTS = 4
_REFERENCE_ATTEMPTS = 3


def stage_key(stage: StageRef, task: Task) -> str:
    """Identity of a builder: the stage, its options and the task."""
    return json.dumps([stage.factory, stage.options, task.key], sort_keys=True)


class Batch:
    """Measures one job.

    Args:
        job: the job.
        crew: the workers.
        options: the runner's options.
        policy: the clock policy.
        deadlines: the task's time-outs.
        reference: the task's expected outputs.
        threads: threads a kernel runs with.
        first_slot: a number from which on slots are unused.
    """

    def __init__(
        self,
        job: MeasureJob,
        *,
        crew: Crew,
        options: LocalOptions,
        policy: TimingPolicy,
        deadlines: Deadlines,
        reference: Reference,
        threads: int,
        first_slot: int,
    ) -> None:
        self._job = job
        self._crew = crew
        self._options = options
        self._policy = policy
        self._deadlines = deadlines
        self._reference = reference
        self._threads = threads
        self._key = stage_key(job.space, job.task)
        self._pending = deque(
            Candidate(config=tuple(int(index) for index in config), slot=first_slot + place)
            for place, config in enumerate(job.configs)
        )
        self._count = len(self._pending)
        self._built: deque[Candidate] = deque()
        self._rounds = Rounds(options, job.best_seconds)
        self._best = job.best_seconds
        self._failed_opens = 0
        self._interrupted = False

    def interrupt(self) -> None:
        """Finish the measurement in flight and yield no more after it."""
        self._interrupted = True
        self._crew.wake()

    @property
    def _stopped(self) -> bool:
        return self._interrupted or self._crew.closed

    def run(self) -> Iterator[Measurement]:
        """Yield one measurement per configuration, each as soon as it is known."""
        try:
            while (self._pending or self._built) and not self._stopped:
                yield from self._build_phase()
                yield from self._time_phase()
                self._recycle()
            yield from self._leader_phase()
        finally:
            self._release()

    # -- building ---------------------------------------------------------------------------

    def _build_phase(self) -> Iterator[Measurement]:
        """Build until nothing is left to build or the workers hold as much as they may."""
        room = self._options.build_ahead * self._crew.size
        while not self._stopped:
            self._crew.fill(self._count)
            for worker in self._crew.workers:
                if worker.idle and worker.initialised and self._still_there(worker):
                    self._employ(worker, may_build=len(self._built) < room)
            busy = any(worker.work is not None for worker in self._crew.workers)
            full = not self._pending or len(self._built) >= room
            if not busy and full and (self._reference.ready or not self._built):
                return
            for event in self._crew.wait():
                yield from self._handle(event)

    def _employ(self, worker: WorkerProcess, *, may_build: bool) -> None:
        """Give an idle worker the most urgent work there is for it, if any."""
        if worker.opened != self._key:
            if self._pending and may_build:
                worker.submit("open", self._open_command(), self._options.start_timeout)
        elif not self._reference.ready and not self._computing_reference:
            command: Message = {"command": "reference", "path": str(self._reference.path)}
            worker.submit("reference", command, self._options.reference_timeout)
        elif self._pending and may_build:
            candidate = self._pending.popleft()
            cores = self._crew.cores
            message: Message = {
                "command": "build",
                "slot": candidate.slot,
                "config": candidate.config,
                "cores": [cores[self._crew.position(worker) % len(cores)]],
            }
            candidate.worker = worker
            candidate.build_seconds = 0.0
            worker.built += 1
            worker.submit(candidate, message, self._deadlines.build)

    @property
    def _computing_reference(self) -> bool:
        works = (worker.work for worker in self._crew.workers)
        return any(work is not None and work.tag == "reference" for work in works)

    def _open_command(self) -> Message:
        return {
            "command": "open",
            "factory": self._job.space.factory,
            "options": self._job.space.options,
            "task": self._job.task.to_json(),
            "threads": self._threads,
        }

    def _still_there(self, worker: WorkerProcess) -> bool:
        """Whether an idle worker lives; nobody is blamed for one killed while it was idle."""
        worker.poll()
        if worker.end is not None:
            for held in [c for c in self._built if c.worker is worker]:
                self._built.remove(held)
                self._pending.append(held)
        return worker.alive

    # -- events -----------------------------------------------------------------------------

    def _handle(self, event: Event) -> Iterator[Measurement]:
        """Take in what happened to a worker while building, or to an idle one."""
        if self._crew.closed:
            return
        if event.end is not None:
            yield from self._lost(event)
        elif event.reply is None:
            return
        elif event.tag == "open":
            if event.reply["status"] != "ok":
                raise_stage_error(self._job.space.factory, event.reply)
            event.worker.opened = self._key
            self._failed_opens = 0
        elif event.tag == "reference":
            self._take_reference(event.reply)
        elif isinstance(event.tag, Candidate):
            candidate: Candidate = event.tag
            candidate.build_seconds = event.reply["elapsed"]
            if event.reply["status"] == "ok":
                self._deadlines.built(candidate.build_seconds)
                self._built.append(candidate)
            else:
                yield candidate.failed_reply(event.reply, event.worker.log)

    def _take_reference(self, reply: Message) -> None:
        if reply["status"] == "error":
            raise_stage_error(self._job.space.factory, reply)
        if reply["status"] == "none":
            raise PluginError(
                f"candidates of {self._job.space.factory!r} cannot be checked: {reply['message']}",
                hint="its builder has to implement reference()",
            )
        self._reference.tolerance = reply["tolerance"]
        self._reference.ready = True

    def _lost(self, event: Event) -> Iterator[Measurement]:
        """A worker ended: judge the candidate at work, build again what else it held."""
        end = event.end
        if end is None:
            return
        for kept in [c for c in self._built if c.worker is event.worker]:
            self._built.remove(kept)
            if kept is not event.tag:
                self._pending.append(kept)
        for leader in [c for c in self._rounds.held if c.worker is event.worker]:
            leader.worker = None
        if event.tag == "open":
            self._failed_opens += 1
            if self._failed_opens >= _OPEN_ATTEMPTS:
                raise PluginError(
                    f"the stage {self._job.space.factory!r} does not start: {end.explain()}",
                    hint="make the stage by hand in a fresh Python to see why",
                )
        elif event.tag == "reference":
            self._reference.attempts += 0 if end.from_outside else 1
            if self._reference.attempts >= _REFERENCE_ATTEMPTS or end.reason is EndReason.DEADLINE:
                raise PluginError(
                    f"the reference outputs of task {self._job.task.name!r} cannot be computed: "
                    f"{end.explain()}",
                    hint="raise reference_timeout or memory_mib of the runner",
                )
        elif isinstance(event.tag, Candidate):
            yield from self._judge(event.tag, event, building=not event.tag.build_seconds)

    def _judge(
        self, candidate: Candidate, event: Event, *, building: bool
    ) -> Iterator[Measurement]:
        """Fail the candidate that was at work, unless its worker was killed from outside."""
        end = event.end
        if end is None:
            return
        if building:
            candidate.build_seconds = end.seconds
        else:
            candidate.run_seconds = end.seconds
        if end.from_outside and candidate.losses < self._options.retries:
            candidate.losses += 1
            self._pending.append(candidate)
        else:
            yield candidate.ended(end, building=building)

    # -- timing -----------------------------------------------------------------------------

    def _time_phase(self) -> Iterator[Measurement]:
        """Check and time what is built, one kernel at a time."""
        while self._built and not self._stopped:
            candidate = self._built.popleft()
            worker = candidate.worker
            if worker is None or not self._still_there(worker):
                self._pending.append(candidate)
                continue
            message: Message = {
                "command": "measure",
                "slot": candidate.slot,
                "cores": self._crew.cores[:1],
                "reference": str(self._reference.path),
                "tolerance": self._reference.tolerance,
                "policy": attrs.asdict(self._policy),
                "probe": False,
                "best": self._best,
            }
            self._crew.quiet(worker)
            worker.submit(candidate, message, self._deadlines.run(self._best))
            event = self._answer_of(worker)
            if event is None:
                return
            if event.end is not None:
                yield from self._lost(event)
            elif event.reply is not None:
                yield from self._take_timing(candidate, event.reply)

    def _answer_of(self, worker: WorkerProcess) -> Event | None:
        """Wait for one worker; returns its event, or None when the runner was closed."""
        event = None
        while event is None and not self._crew.closed:
            event = next(iter(self._crew.wait([worker])), None)
        return None if self._crew.closed else event

    def _take_timing(self, candidate: Candidate, reply: Message) -> Iterator[Measurement]:
        candidate.run_seconds = reply["elapsed"]
        worker = candidate.worker
        if reply["status"] != "ok":
            log = worker.log if worker is not None else ""
            self._drop(candidate)
            yield candidate.failed_reply(reply, log)
            return
        self._deadlines.ran(candidate.run_seconds)
        candidate.repeats = tuple(reply["seconds"])
        candidate.number = reply["number"]
        candidate.error = reply["error"]
        self._best = min(self._best, float(np.median(candidate.repeats)))
        yield from self._hand_out(self._rounds.admit(candidate))

    def _leader_phase(self) -> Iterator[Measurement]:
        """Time the promising candidates again, in turn."""
        yield from self._hand_out(self._rounds.play(self._time_again, lambda: self._stopped))

    def _hand_out(self, candidates: Iterable[Candidate]) -> Iterator[Measurement]:
        """Yield the measurements of candidates that are done with, and free their kernels."""
        for candidate in candidates:
            self._drop(candidate)
            yield candidate.failure or candidate.succeeded()

    def _time_again(self, candidate: Candidate) -> None:
        """One more repeat of a leader, unless the worker that held it is gone."""
        worker = candidate.worker
        if worker is None or not self._still_there(worker):
            candidate.worker = None
            return
        message: Message = {
            "command": "repeat",
            "slot": candidate.slot,
            "cores": self._crew.cores[:1],
            "number": candidate.number,
            "cold_bytes": self._policy.cold_bytes,
        }
        self._crew.quiet(worker)
        worker.submit(candidate, message, self._options.run_timeout)
        event = self._answer_of(worker)
        if event is None:
            return
        if event.end is not None:
            candidate.worker = None
            # It ran before and does not now: a failure, unless somebody else killed its worker.
            if not event.end.from_outside:
                candidate.failure = candidate.ended(event.end, building=False)
        elif event.reply is not None and event.reply["status"] == "ok":
            candidate.again.append(event.reply["seconds"])
            candidate.run_seconds += event.reply["elapsed"]
        elif event.reply is not None:
            candidate.failure = candidate.failed_reply(event.reply, worker.log)

    # -- housekeeping -----------------------------------------------------------------------

    @staticmethod
    def _drop(candidate: Candidate) -> None:
        """Have the kernel freed with the worker's next command."""
        if candidate.worker is not None:
            candidate.worker.garbage.append(candidate.slot)
            candidate.worker = None

    def _recycle(self) -> None:
        """End workers that built much or grew much, unless they hold leaders."""
        holding = {id(candidate.worker) for candidate in self._rounds.held}
        for worker in self._crew.workers:
            if id(worker) in holding or not worker.idle or not worker.initialised:
                continue
            memory = worker.memory
            if worker.first_memory is None:
                worker.first_memory = memory
            grown = memory - worker.first_memory > self._options.recycle_growth_mib * _MIB
            if worker.built >= self._options.recycle_after or grown:
                worker.kill(EndReason.DEADLINE)

    def _release(self) -> None:
        """Leave idle workers behind: free kernels, end workers that are still at work."""
        for worker in self._crew.workers:
            if worker.work is not None and worker.work.tag != "init":
                worker.kill(EndReason.DEADLINE)
        for candidate in [*self._built, *self._rounds.held]:
            self._drop(candidate)
        self._recycle()
