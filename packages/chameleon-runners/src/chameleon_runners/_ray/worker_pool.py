"""A pool of workers that are processes on the nodes of a Ray cluster, each behind an actor."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import ray
from chameleon_core.api import words

from chameleon_runners._engine.workers import (
    EndReason,
    Listener,
    Work,
    Worker,
    WorkerEnd,
    WorkerEvent,
    WorkerPool,
)
from chameleon_runners._ray import payloads
from chameleon_runners._ray.actor import Answer
from chameleon_runners._ray.cluster import Cluster
from chameleon_runners._worker.protocol import Message

_WATCH_SECONDS = 0.25
_TRANSFER_SECONDS = 30.0
"""Seconds that a command may take beyond its time limit, for transfers and for Ray."""

_CLOSING_SECONDS = 5.0
_LONGEST_REASON = 400


@attrs.frozen(kw_only=True)
class ActorEnd(WorkerEnd):
    """The end of a worker whose actor ended, which is never the candidate's fault.

    Attributes:
        description: the end of the actor, as a part of a message.
    """

    description: str

    @property
    def killed_externally(self) -> bool:
        """Always True: something other than the worker and its candidate ended the actor."""
        return True


@attrs.frozen(kw_only=True)
class _ActorPlace:
    """The actor that a worker needs: any actor for a builder, or a device's actor.

    Attributes:
        name: the name of the device; empty for a builder.
        node: the node of the device; empty for a builder.
        resources: the resources of the node that the device's actor takes.
    """

    name: str = ""
    node: str = ""
    resources: dict[str, Any] = attrs.field(factory=dict, eq=False)


@attrs.define(kw_only=True, eq=False)
class _Actor:
    """An actor, with its place and whether it has answered yet."""

    place: _ActorPlace
    actor: Any
    answered: bool = False


@attrs.define(kw_only=True, eq=False)
class RayWorker(Worker):
    """A worker on a node of a Ray cluster, behind an actor.

    Attributes:
        number: the number of the worker; later workers have higher numbers.
        preload: ``"module:Class"`` of the stage that the worker should import early, or None.
        host: the actor that runs the worker, or None before the first command.
    """

    number: int
    preload: str | None
    host: _Actor | None = None


class RayPool(WorkerPool):
    """A pool of workers behind actors of a Ray cluster.

    Files travel as bytes through Ray's object store, because nodes share no file system.

    Args:
        cluster: the connection to the cluster.
        start_timeout: the longest start of an actor, and again of its worker, in seconds.
    """

    def __init__(self, cluster: Cluster, *, start_timeout: float) -> None:
        super().__init__()
        self._cluster = cluster
        self._start_timeout = start_timeout
        self._inbox: queue.SimpleQueue[tuple[RayWorker, Work, Future[Answer]] | None]
        self._inbox = queue.SimpleQueue()
        self._hosts: set[_Actor] = set()
        self._spare: defaultdict[_ActorPlace, list[_Actor]] = defaultdict(list)
        self._references: dict[str, Any] = {}
        self._lock = threading.RLock()

    def now(self) -> float:
        return time.monotonic()

    def start_worker(self, listener: Listener, *, preload: str | None = None) -> Worker:
        self._require_open()
        worker = RayWorker(number=next(self._numbers), preload=preload)
        self.enqueue(listener, WorkerEvent(worker=worker, reply={"status": "ok"}))
        return worker

    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        if not isinstance(worker, RayWorker):
            raise TypeError(f"{type(worker).__name__} is no worker of a Ray cluster")
        with self._lock:
            if self.closed:
                return
            message = self._bind(worker, message)
            if worker.host is None:
                raise RuntimeError("a worker was bound to no actor")
            started = time.monotonic()
            longest = timeout + _TRANSFER_SECONDS
            longest += 0.0 if worker.host.answered else 2.0 * self._start_timeout
            tag = (then, message)
            work = worker.work = Work(tag=tag, started=started, deadline=started + longest)
            self._expect(worker, work)
            payload = None
            if "artifact" in message and message["command"] != "export":
                payload = payloads.pack(Path(message["artifact"]))
            answer = worker.host.actor.do.remote(
                worker.number,
                message,
                timeout,
                preload=worker.preload,
                payload=payload,
                reference=self._reference(message),
            )
        future: Future[Answer] = answer.future()
        future.add_done_callback(lambda done: self._inbox.put((worker, work, done)))

    def _bind(self, worker: RayWorker, message: Message) -> Message:
        """Give a worker its actor with its first command; return the command for its process."""
        address = _ActorPlace()
        if message["command"] == "connect":
            options = message["options"]
            message = {**message, "options": options["options"]}
            address = _ActorPlace(**{key: options[key] for key in ("name", "node", "resources")})
        if worker.host is None:
            spare = self._spare[address]
            worker.host = spare.pop() if spare else self._start(address)
        return message

    def _start(self, address: _ActorPlace) -> _Actor:
        cluster = self._cluster
        if address.name:
            actor = cluster.start_device(address.node, address.resources)
        else:
            actor = cluster.start_builder()
        host = _Actor(place=address, actor=actor)
        self._hosts.add(host)
        return host

    def _reference(self, message: Message) -> list[Any]:
        """The object with the reference file that a command needs, in a list; empty if none."""
        path = message.get("reference")
        if path is None:
            return []
        if path not in self._references:
            self._references[path] = ray.put(Path(path).read_bytes())
        return [self._references[path]]

    def end_worker(self, worker: Worker) -> None:
        self.forget_events(worker)
        if not isinstance(worker, RayWorker) or not worker.alive:
            return
        worker.mark_ended()
        with self._lock:
            if worker.host is not None and not self.closed:
                self._control(worker.host, "end_worker", worker.number)
                self._spare[worker.host.place].append(worker.host)

    @staticmethod
    def _control(host: _Actor, method: str, *arguments: Any) -> Any:
        """Call an actor's method without waiting for its current command."""
        return getattr(host.actor, method).options(concurrency_group="control").remote(*arguments)

    def wait(self, until: float | None) -> None:
        with contextlib.suppress(queue.Empty):
            item = self._inbox.get(timeout=self._seconds_to_wait(_WATCH_SECONDS, until))
            while True:
                if item is not None:
                    self._take(*item)
                item = self._inbox.get_nowait()
        for worker, work in self._overdue():
            if isinstance(worker, RayWorker):
                seconds = time.monotonic() - work.started
                self._lose(worker, work, f"it did not answer for {seconds:.0f} s")

    def _take(self, worker: RayWorker, work: Work, done: Future[Answer]) -> None:
        """Handle an actor's answer, or Ray's error."""
        if worker.work is not work or worker.host is None or self.closed:
            return
        error = done.exception()
        if error is not None:
            self._lose(worker, work, str(error))
            return
        worker.host.answered = True
        answer = done.result()
        worker.last_output, worker.end = answer.log, answer.end
        listener, message = work.tag
        if answer.payload is not None:
            _write_result(answer.payload, message)
        if worker.end is not None:
            self._spare[worker.host.place].append(worker.host)
        self._finish_work(worker, listener, answer.reply, answer.seconds)

    def _lose(self, worker: RayWorker, work: Work, reason: str) -> None:
        """Handle an actor that has ended or does not answer."""
        if worker.host is not None:
            self._hosts.discard(worker.host)
            # Ray raises an error if the actor has ended.
            with contextlib.suppress(Exception):
                ray.kill(worker.host.actor)
        seconds = time.monotonic() - work.started
        description = f"is gone with its Ray actor: {words.in_one_line(reason)[:_LONGEST_REASON]}"
        worker.end = ActorEnd(
            reason=EndReason.DIED, status=-9, log="", seconds=seconds, description=description
        )
        self._finish_work(worker, work.tag[0], None, seconds)

    def _finish_work(
        self, worker: RayWorker, listener: Listener, reply: Message | None, seconds: float
    ) -> None:
        worker.work = None
        event = WorkerEvent(worker=worker, reply=reply, end=worker.end, seconds=seconds)
        self.enqueue(listener, event)

    def wake(self) -> None:
        self._inbox.put(None)

    def close(self) -> None:
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self.wake()
            if self._cluster.connected:
                self._end_actors()
            self._cluster.close()

    def _end_actors(self) -> None:
        ending = [self._control(host, "close") for host in self._hosts if host.answered]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=_CLOSING_SECONDS)
        for host in self._hosts:
            ray.kill(host.actor)


def _write_result(payload: bytes, message: Message) -> None:
    """Write a command's result to the path that the command names."""
    if message["command"] == "export":
        payloads.unpack(payload, Path(message["artifact"]))
    else:
        payloads.write(payload, Path(message["path"]))
