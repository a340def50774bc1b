"""The actor on a node, which supervises one worker process and passes messages on.

The worker is a separate process, so that a crash ends only this process, of which the actor reports
signal, status and output. A new actor would take seconds to start. The actor also keeps its GPU.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import threading
import time
from pathlib import Path

import attrs
import ray
from chameleon_system.api import (
    kill_abandoned,
    make_scratch_folder,
    remove_abandoned_folders,
    usable_cores,
)

from chameleon_runners import _environment as environment
from chameleon_runners._engine.process_pool import Starter
from chameleon_runners._engine.worker_process import WorkerProcess
from chameleon_runners._engine.workers import EndReason, WorkerEnd
from chameleon_runners._ray import payloads
from chameleon_runners._worker.protocol import Message

_WATCH_SECONDS = 0.25


@attrs.frozen(kw_only=True)
class Answer:
    """The result of a command that an actor's worker handled.

    Attributes:
        end: the end of the worker, or None. ``reply`` is None, too, if the runner has ended the
            worker.
        seconds: the duration of the work on the node, without starts and transfers.
        payload: the result as bytes, if any: a packed folder with an exported kernel, or a
            reference file.
    """

    reply: Message | None = None
    end: WorkerEnd | None = None
    log: str = ""
    seconds: float = 0.0
    payload: bytes | None = None


class WorkerActor:
    """An actor that runs one worker process at a time for the runner.

    Args:
        threads: the number of threads that a kernel runs with.
        memory_bytes: the memory limit of a worker; None for a share of the node's memory.
        start_timeout: the longest start of a worker in seconds.
    """

    def __init__(self, *, threads: int, memory_bytes: int | None, start_timeout: float) -> None:
        remove_abandoned_folders()
        kill_abandoned()
        cores = usable_cores()
        self._folder = make_scratch_folder()
        self._start_timeout = start_timeout
        self._starter = Starter(
            threads=threads,
            blas_threads=1,
            cores=cores,
            memory_bytes=memory_bytes or environment.memory_limit(len(cores)),
            start_timeout=start_timeout,
        )
        self._worker: WorkerProcess | None = None
        self._number = -1
        self._last_ended = -1
        # ``end_worker`` and ``close`` come from another thread than ``do``.
        self._lock = threading.Lock()

    def do(
        self,
        number: int,
        message: Message,
        timeout: float,
        *,
        preload: str | None,
        payload: bytes | None,
        reference: list[ray.ObjectRef[bytes]],
    ) -> Answer:
        """Let a worker handle a command within a time limit in seconds."""
        worker = self._worker_of(number, preload)
        if worker is None or not worker.alive:
            return Answer(end=worker.end if worker is not None else None)
        message = self._localize(message, payload, reference)
        started = time.monotonic()
        worker.submit("work", message, timeout)
        reply = _answer_of(worker)
        seconds = time.monotonic() - started
        payload_made = self._collect(message, reply)
        if reply is not None and "description" in reply:
            reply["description"] = {**reply["description"], **_node_facts()}
        return Answer(
            reply=reply, end=worker.end, log=worker.log, seconds=seconds, payload=payload_made
        )

    def _worker_of(self, number: int, preload: str | None) -> WorkerProcess | None:
        """The worker with a number, ready or ended; None if the runner has ended it."""
        with self._lock:
            if number <= self._last_ended:
                return None
            if number == self._number:
                return self._worker
            self._end_worker()
            shutil.rmtree(self._folder / str(self._number), ignore_errors=True)
            self._number = number
            self._worker = worker = self._starter.start(preload=preload)
        reply = _answer_of(worker)
        if reply is None or reply["status"] != "ok":
            worker.kill(EndReason.DIED)
        return worker

    def _localize(
        self, message: Message, payload: bytes | None, reference: list[ray.ObjectRef[bytes]]
    ) -> Message:
        """The message with paths of this node, after the files at these paths were written."""
        # The ids of cores are those of the runner's machine.
        changed: Message = {**message, "cores": []}
        folder = self._folder / str(self._number)
        folder.mkdir(exist_ok=True)
        for name in ("artifact", "path"):
            if name in message:
                changed[name] = str(folder / Path(message[name]).name)
        if payload is not None:
            payloads.unpack(payload, Path(changed["artifact"]))
        if reference:
            path = self._folder / Path(message["reference"]).name
            if not path.exists():
                payloads.write(ray.get(reference[0]), path)
            changed["reference"] = str(path)
        return changed

    @staticmethod
    def _collect(message: Message, reply: Message | None) -> bytes | None:
        """The command's result as bytes, or None; its files on this node are removed."""
        good = reply is not None and reply["status"] == "ok"
        payload = None
        if message["command"] == "export" and good:
            payload = payloads.pack(Path(message["artifact"]))
        if message["command"] == "reference" and good:
            path = Path(message["path"])
            payload = path.read_bytes()
            path.unlink()
        if message["command"] in {"export", "run"}:
            shutil.rmtree(message["artifact"], ignore_errors=True)
        return payload

    def end_worker(self, number: int) -> None:
        """End a worker, even if it is busy."""
        with self._lock:
            self._last_ended = max(self._last_ended, number)
            if self._number <= number:
                self._end_worker()

    def close(self) -> None:
        """End the worker, and remove all files."""
        with self._lock:
            self._last_ended = 1 << 62
            self._end_worker()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill(EndReason.DEADLINE)


def _answer_of(worker: WorkerProcess) -> Message | None:
    """Wait for a worker's answer; None if the worker ends first."""
    while worker.alive:
        poll = select.poll()
        left = _WATCH_SECONDS
        if worker.work is not None:
            left = min(left, worker.work.deadline - time.monotonic() + 0.001)
        # Another thread may end the worker, which closes the descriptor.
        with contextlib.suppress(OSError, ValueError):
            poll.register(worker.replies, select.POLLIN)
            poll.poll(1000.0 * max(0.0, left))
        reply = worker.poll()
        if reply is not None:
            return reply
    return None


def _node_facts() -> dict[str, object]:
    """The address of this node, and the accelerators that this actor uses."""
    context = ray.get_runtime_context()
    accelerators = {name: ids for name, ids in context.get_accelerator_ids().items() if ids}
    return {"node": ray.util.get_node_ip_address(), "accelerators": accelerators}
