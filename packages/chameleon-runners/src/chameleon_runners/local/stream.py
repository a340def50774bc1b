"""Jobs measured one after the other, single configurations of several tasks side by side."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from chameleon_core.stages import Arrival, MeasureJob
from chameleon_core.stages.streams import OrderedStream

Measure = Callable[[Sequence[MeasureJob]], Generator[Arrival, None, None]]


class LocalStream(OrderedStream):
    """Measures jobs in the order of their arrival, single configurations in groups.

    Args:
        measure: measures jobs of one configuration each, or one of several.
        size: how many such jobs make up a group at most.
    """

    def __init__(self, measure: Measure, *, size: int) -> None:
        super().__init__()
        self._measure = measure
        self._size = size

    def _begin(self) -> Generator[Arrival, None, None]:
        jobs = [self._waiting.popleft()]
        while (
            self._waiting
            and len(jobs) < self._size
            and all(len(job.configs) == 1 for job in (jobs[0], self._waiting[0]))
        ):
            jobs.append(self._waiting.popleft())
        return self._measure(jobs)
