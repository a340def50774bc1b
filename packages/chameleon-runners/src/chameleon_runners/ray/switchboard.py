"""Lanes that are worker processes on a Ray cluster's nodes, each behind an actor."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import ray

from chameleon_runners.fleet.lanes import (
    ClosedError,
    Lane,
    LaneEvent,
    Listener,
    PlainLane,
    Switchboard,
)
from chameleon_runners.process import EndReason, Work, WorkerEnd
from chameleon_runners.ray import parcels
from chameleon_runners.ray.cluster import Cluster
from chameleon_runners.ray.host import Answer
from chameleon_runners.worker.protocol import Message

_WATCH_SECONDS = 0.25
_TRANSFER_SECONDS = 30.0
"""How much longer than its time-out a command may take: parcels travel, and Ray may be slow."""

_CLOSING_SECONDS = 5.0
_LONGEST_REASON = 400


@attrs.frozen(kw_only=True)
class ActorEnd(WorkerEnd):
    """A lane ended because its actor did, which is no candidate's fault.

    Attributes:
        words: how, for a message.
    """

    words: str

    @property
    def from_outside(self) -> bool:
        """The candidate ran in a process of its own: whatever ended the actor, it did not."""
        return True


@attrs.frozen(kw_only=True)
class _Slot:
    """Whom a lane needs: a builder, or the actor that has a certain device.

    Attributes:
        name: of the device; empty for a builder.
        node: that has it.
    """

    name: str = ""
    node: str = ""


@attrs.define(kw_only=True, eq=False)
class _Host:
    """An actor as the runner knows it."""

    slot: _Slot
    actor: Any
    answered: bool = False


@attrs.define(kw_only=True, eq=False)
class RayLane(PlainLane):
    """A worker on some node; it gets an actor with its first command, which tells what it needs.

    Attributes:
        number: higher for later ones.
        preload: the stage that it is going to be asked for.
        host: the actor that has its worker.
    """

    number: int
    preload: str | None
    host: _Host | None = None


class RaySwitchboard(Switchboard):
    """Waits for the actors of a cluster.

    Artifacts and references are files of the runner's machine between a builder and a device;
    they travel as bytes through Ray's object store, so that the loss of a node loses none.

    Args:
        cluster: where actors are started; left with this object.
        start_timeout: how long an actor, and again its worker, may take to start, in seconds.
    """

    def __init__(self, cluster: Cluster, *, start_timeout: float) -> None:
        super().__init__()
        self._cluster = cluster
        self._start_timeout = start_timeout
        self._numbers = itertools.count()
        self._inbox: queue.SimpleQueue[tuple[RayLane, Work, Future[Answer]] | None]
        self._inbox = queue.SimpleQueue()
        self._deadlines: list[tuple[float, int, RayLane, Work]] = []
        self._hosts: set[_Host] = set()
        self._spare: defaultdict[_Slot, list[_Host]] = defaultdict(list)
        self._references: dict[str, Any] = {}
        self._closed = False
        self._lock = threading.RLock()

    @property
    def closed(self) -> bool:
        return self._closed

    def now(self) -> float:
        return time.monotonic()

    def hire(self, heard: Listener, *, preload: str | None = None) -> Lane:
        if self._closed:
            raise ClosedError
        lane = RayLane(number=next(self._numbers), preload=preload)
        self.happened(heard, LaneEvent(lane=lane, reply={"status": "ok"}))
        return lane

    def submit(self, lane: Lane, then: Listener, message: Message, timeout: float) -> None:
        if not isinstance(lane, RayLane):
            raise TypeError(f"{type(lane).__name__} is no lane of a Ray cluster")
        with self._lock:
            if self._closed:
                return
            message = self._bind(lane, message)
            if lane.host is None:
                raise RuntimeError("a lane was bound to no actor")
            started = time.monotonic()
            patience = timeout + _TRANSFER_SECONDS
            patience += 0.0 if lane.host.answered else 2.0 * self._start_timeout
            tag = (then, message)
            work = lane.work = Work(tag=tag, started=started, deadline=started + patience)
            entry = (work.deadline, next(self._numbers), lane, work)
            heapq.heappush(self._deadlines, entry)
            parcel = None
            if "artifact" in message and message["command"] != "export":
                parcel = parcels.pack(Path(message["artifact"]))
            answer = lane.host.actor.do.remote(
                lane.number,
                message,
                timeout,
                preload=lane.preload,
                parcel=parcel,
                reference=self._reference(message),
            )
        future: Future[Answer] = answer.future()
        future.add_done_callback(lambda done: self._inbox.put((lane, work, done)))

    def _bind(self, lane: RayLane, message: Message) -> Message:
        """Give a lane its actor with its first command, and return that as its worker wants it."""
        slot = _Slot()
        if message["command"] == "connect":
            place = message["options"]
            slot = _Slot(name=place["name"], node=place["node"])
            message = {**message, "options": place["options"]}
        if lane.host is None:
            spare = self._spare[slot]
            lane.host = spare.pop() if spare else self._start(slot)
        return message

    def _start(self, slot: _Slot) -> _Host:
        cluster = self._cluster
        actor = cluster.start_device(slot.node) if slot.name else cluster.start_builder()
        host = _Host(slot=slot, actor=actor)
        self._hosts.add(host)
        return host

    def _reference(self, message: Message) -> list[Any]:
        """Where nodes can get the reference file that a command needs; put there once."""
        path = message.get("reference")
        if path is None:
            return []
        if path not in self._references:
            self._references[path] = ray.put(Path(path).read_bytes())
        return [self._references[path]]

    def dismiss(self, lane: Lane) -> None:
        self.hush(lane)
        if not isinstance(lane, RayLane) or not lane.alive:
            return
        lane.dismiss()
        with self._lock:
            if lane.host is not None and not self._closed:
                self._control(lane.host, "dismiss", lane.number)
                self._spare[lane.host.slot].append(lane.host)

    @staticmethod
    def _control(host: _Host, method: str, *arguments: Any) -> Any:
        """Call a method that does not wait for the one in progress."""
        return getattr(host.actor, method).options(concurrency_group="control").remote(*arguments)

    def wait(self, until: float | None) -> None:
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][2].work is not self._deadlines[0][3]:
            heapq.heappop(self._deadlines)
        limits = [_WATCH_SECONDS] + ([until - now] if until is not None else [])
        if self._deadlines:
            limits.append(self._deadlines[0][0] - now)
        with contextlib.suppress(queue.Empty):
            item = self._inbox.get(timeout=max(0.0, min(limits)))
            while True:
                if item is not None:
                    self._take(*item)
                item = self._inbox.get_nowait()
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] < now:
            _, _, lane, work = heapq.heappop(self._deadlines)
            if lane.work is work:
                self._lose(lane, work, f"it did not answer for {now - work.started:.0f} s")

    def _take(self, lane: RayLane, work: Work, done: Future[Answer]) -> None:
        """An actor answered, or Ray says why it does not."""
        if lane.work is not work or lane.host is None or self._closed:
            return
        error = done.exception()
        if error is not None:
            self._lose(lane, work, str(error))
            return
        lane.host.answered = True
        answer = done.result()
        lane.log, lane.end = answer.log, answer.end
        listener, message = work.tag
        if answer.parcel is not None:
            _deliver(answer.parcel, message)
        if lane.end is not None:
            self._spare[lane.host.slot].append(lane.host)
        self._tell(lane, listener, answer.reply, answer.seconds)

    def _lose(self, lane: RayLane, work: Work, reason: str) -> None:
        """An actor is gone, or as good as gone."""
        if lane.host is not None:
            self._hosts.discard(lane.host)
            with contextlib.suppress(Exception):
                ray.kill(lane.host.actor)
        seconds = time.monotonic() - work.started
        words = f"is gone with its Ray actor: {' '.join(reason.split())[:_LONGEST_REASON]}"
        lane.end = ActorEnd(reason=EndReason.DIED, status=-9, log="", seconds=seconds, words=words)
        self._tell(lane, work.tag[0], None, seconds)

    def _tell(
        self, lane: RayLane, listener: Listener, reply: Message | None, seconds: float
    ) -> None:
        lane.work = None
        event = LaneEvent(lane=lane, reply=reply, end=lane.end, seconds=seconds)
        self.happened(listener, event)

    def wake(self) -> None:
        self._inbox.put(None)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.wake()
            if self._cluster.joined:
                self._end_actors()
            self._cluster.close()

    def _end_actors(self) -> None:
        ending = [self._control(host, "close") for host in self._hosts if host.answered]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=_CLOSING_SECONDS)
        for host in self._hosts:
            ray.kill(host.actor)


def _deliver(parcel: bytes, message: Message) -> None:
    """Put what a command made where the command says."""
    if message["command"] == "export":
        parcels.unpack(parcel, Path(message["artifact"]))
    else:
        parcels.write(parcel, Path(message["path"]))
