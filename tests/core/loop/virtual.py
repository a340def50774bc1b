"""Devices and searches that take virtual seconds: who waits for whom can be told exactly."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from typing import Any

import attrs
from chameleon_core._loop import tuning
from chameleon_core._loop.round.in_flight import BatchesInFlight
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_core._schedulers import Scheduler
from chameleon_core.plugin_api import Frontend, MeasureStream, NoOptions
from synthetic import (
    SyntheticRunner,
    plugin_of,
    record_of,
    synthetic_document,
    synthetic_registry,
    synthetic_task,
)


@attrs.frozen(kw_only=True)
class FleetOptions:
    """Options of the virtual fleet.

    Attributes:
        devices: how many there are.
        seconds: what a candidate takes.
        uneven: by how much candidates differ from that, as a share of it.
    """

    devices: int = 8
    seconds: float = 0.2
    uneven: float = 0.0


class VirtualFleet(SyntheticRunner):
    """Costs of synthetic tasks, from devices that take virtual seconds."""

    measures_hardware = False
    made = []

    def __init__(self, options: FleetOptions) -> None:
        self.options = options
        self.clock = 0.0
        self.busy_seconds = 0.0
        self.submitted: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self.overlapping = 0
        self.stopped = False
        self.made.append(self)

    @property
    def lanes(self):
        return self.options.devices

    def now(self):
        return self.clock

    def takes(self, config):
        drawn = hash((*config, 7)) % 1000 / 1000 - 0.5
        return self.options.seconds * (1 + 2 * self.options.uneven * drawn)

    def measure(self, job):
        with self.stream() as stream:
            stream.submit(job)
            while stream.busy:
                yield stream.poll().measurement

    def stream(self):
        return VirtualStream(self)

    def interrupt(self):
        self.stopped = True

    def outcome(self, task, config):
        return self._outcome(task, config)


class VirtualStream(MeasureStream):
    """First come, first served, on as many devices as there are."""

    def __init__(self, fleet):
        self._fleet = fleet
        self._waiting: deque[Any] = deque()
        self._running: list[Any] = []
        self._numbers = itertools.count()
        self._open: Counter[Any] = Counter()

    def submit(self, job):
        assert all(other.task.key != job.task.key for other in self._open), "one batch at a time"
        self._waiting.extend((job, tuple(config)) for config in job.configs)
        self._fleet.submitted.update((job.task.name, tuple(config)) for config in job.configs)
        self._open[job] = len(job.configs)
        self._fleet.overlapping = max(self._fleet.overlapping, len(self._open))
        self._start()

    def _start(self):
        while not self._fleet.stopped and self._waiting and len(self._running) < self._fleet.lanes:
            job, config = self._waiting.popleft()
            seconds = self._fleet.takes(config)
            self._fleet.busy_seconds += seconds
            entry = (self._fleet.clock + seconds, next(self._numbers), job, config)
            heapq.heappush(self._running, entry)

    def poll(self, timeout=None):
        until = float("inf") if timeout is None else self._fleet.clock + timeout
        if not self._running or self._running[0][0] > until:
            self._fleet.clock = max(self._fleet.clock, until if timeout is not None else 0.0)
            return None
        end, _, job, config = heapq.heappop(self._running)
        self._fleet.clock = max(self._fleet.clock, end)
        self._open[job] -= 1
        self._open += Counter()
        self._start()
        return MeasureStream.Arrival(job=job, measurement=self._fleet.outcome(job.task, config))

    @property
    def busy(self):
        return bool(self._running or (self._waiting and not self._fleet.stopped))

    def close(self):
        self._waiting.clear()
        self._running.clear()


class VirtualBatches(BatchesInFlight):
    """Every piece of a search takes the same virtual seconds."""

    fleet = None
    seconds = 0.0

    def _do(self, work):
        result = work()
        until = self.fleet.clock + self.seconds
        while self.fleet.clock < until - 1e-9:
            if self._stream.expected and not self.fleet.stopped:
                self._step(until - self.fleet.clock)
            else:
                self.fleet.clock = until
        return result


class Alike(Frontend):
    """Three tasks whose spaces have the same knobs."""

    def __init__(self, _options: NoOptions) -> None:
        pass

    def tasks(self, target):
        return [
            synthetic_task([9, 9, 9], f"op{index}", failing=10 * index, target=target)
            for index in range(3)
        ]


class Stubborn(Scheduler):
    """The first task until it is done, then the next."""

    def __init__(self, _options, _context):
        pass

    def next_task(self, states):
        return next((index for index, state in enumerate(states) if not state.done), None)


PLUGIN = plugin_of(
    schedulers=[record_of(Stubborn)],
    frontends=[record_of(Alike)],
    runners=[record_of(VirtualFleet, FleetOptions, name="virtual")],
)
"""Registers the fleet as the runner ``virtual``, and what it is tried with."""


def pipeline_of(output, **more):
    """A synthetic pipeline that runs on the virtual fleet."""
    fleet = more.pop("fleet", {})
    document = synthetic_document(output, baselines=[], **more)
    document["runner"] = {"name": "virtual", **fleet}
    return from_dict(document, registry=synthetic_registry(PLUGIN))


def run(monkeypatch, pipeline, *, search_seconds, **more):
    """Run a pipeline where telling and asking take virtual seconds.

    Returns:
        The result, and the fleet; None for that where a run that had ended was only read.
    """
    VirtualFleet.made.clear()

    def batches_in_flight(runner, at_once, store):
        batches = VirtualBatches(
            runner.stream(side_by_side=at_once > 1), now=runner.now, together=store.transaction
        )
        batches.fleet, batches.seconds = VirtualFleet.made[-1], search_seconds
        return batches

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "batches_in_flight", batches_in_flight)
        result = run_pipeline(pipeline, **more)
    return result, VirtualFleet.made[-1] if VirtualFleet.made else None
