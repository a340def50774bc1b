"""The schedulers ``round-robin`` and ``gradient``."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Sequence

from chameleon_core._plugins.records import NoOptions
from chameleon_core._schedulers import Scheduler
from chameleon_core._schedulers.options import GradientOptions


class RoundRobin(Scheduler):
    """Gives the next batch to the task with the fewest batches; among equals, to the first one."""

    def __init__(self, _options: NoOptions, _context: Scheduler.Context) -> None:
        pass

    def next_task(self, states: Sequence[Scheduler.TaskState]) -> int | None:
        waiting = [index for index, state in enumerate(states) if state.waiting]
        return min(waiting, key=lambda index: states[index].rounds, default=None)


class Gradient(Scheduler):
    """Gives a batch to the task with the largest expected gain in the network's latency.

    This is Ansor's task scheduler (Zheng et al., OSDI 2020, section 6) with another expectation.
    Tasks are as fast for their work as the tasks of this run are, with the same spread. The work is
    the time that the design space estimates; for tasks without an estimate, it is the number of
    operations. So the scheduler first expects the improvement of a task that is slow for its work.
    After each batch, the expectation approaches the gain of the batch: exponential smoothing from
    an optimistic value (Sutton and Barto, "Reinforcement Learning", 2018, section 2.5). So a task
    whose expectation is wrong gets few batches. Every batch counts as equally long, because
    a resumed run must not depend on a clock.

    If several tasks are tuned at once, tasks with a batch in flight are left out.

    In contrast to Ansor, a task is skipped if its last batches saved next to nothing. The run ends
    if this holds for all tasks. An alternative saves only the time by which it is faster than the
    task that it would replace. An alternative that is not expected to reach that task's time is
    skipped.

    Args:
        options: the options of the scheduler.
        _context: not used.
    """

    def __init__(self, options: GradientOptions, _context: Scheduler.Context) -> None:
        self._options = options

    def next_task(self, states: Sequence[Scheduler.TaskState]) -> int | None:
        waiting = [index for index, state in enumerate(states) if state.waiting]
        fresh = [index for index in waiting if states[index].rounds == 0]
        if fresh:
            return fresh[0]
        paying = [index for index in waiting if self._pays(states[index], states)]
        gains = {
            index: (self._gain(states[index], states), -states[index].rounds) for index in paying
        }
        return max(gains, key=gains.__getitem__, default=None)

    def _pays(self, state: Scheduler.TaskState, states: Sequence[Scheduler.TaskState]) -> bool:
        """Whether a further batch of a task may be worthwhile."""
        if self._stagnates(state, states):
            return False
        if self._options.stop_gain <= 0.0 or not state.history or math.isinf(state.history[-1]):
            return True
        now = state.history[-1]
        return now - now / len(state.history) < state.seconds_to_beat

    def _stagnates(self, state: Scheduler.TaskState, states: Sequence[Scheduler.TaskState]) -> bool:
        """Whether a task's last batches saved too little for a further batch to be worthwhile."""
        window, stop = self._options.window, self._options.stop_gain
        if len(state.history) <= window or stop <= 0.0:
            return False
        now = state.history[-1]
        if math.isinf(now):
            # Every configuration failed so far: a few more batches may find one that works.
            return len(state.history) > 2 * window
        saved = state.task.weight * _below(state, state.history[-1 - window], now) / window
        return saved < stop * _network(states)

    def _gain(self, state: Scheduler.TaskState, states: Sequence[Scheduler.TaskState]) -> float:
        """The time in seconds that one more batch is expected to save in the network's latency."""
        now = state.history[-1] if state.history else math.inf
        if math.isinf(now):
            return math.inf
        share = _hope(state, states)
        for before, after in itertools.pairwise(filter(math.isfinite, state.history)):
            share += self._options.trust * (1.0 - after / before - share)
        return state.task.weight * _below(state, now, now * (1.0 - share))


def _hope(state: Scheduler.TaskState, states: Sequence[Scheduler.TaskState]) -> float:
    """The share of its time that a task may save if its slowness is drawn from that of all tasks.

    The slowness is the time over the work, and its logarithm has a normal distribution. The result
    is the expected improvement (Jones et al., "Efficient Global Optimization", 1998, section 4.1).
    """
    now, work = state.history[-1], _work(state, state)
    if work <= 0.0:
        return 1.0
    slowness = [
        math.log(other.history[-1] / _work(other, state))
        for other in states
        if other.history and math.isfinite(other.history[-1]) and _work(other, state) > 0.0
    ]
    middle = statistics.fmean(slowness)
    variance = statistics.fmean((each - middle) ** 2 for each in slowness)
    # The least deviation avoids a division by zero.
    below = statistics.NormalDist(middle, max(math.sqrt(variance), sys.float_info.epsilon)).cdf
    own = math.log(now / work)
    return below(own) - math.exp(middle + variance / 2 - own) * below(own - variance)


def _work(state: Scheduler.TaskState, like: Scheduler.TaskState) -> float:
    """The work of a task in the unit of another: its estimated time, or its operations."""
    return state.task.flop * (1.0 if like.guess is None else state.guess or 0.0)


def _below(state: Scheduler.TaskState, before: float, now: float) -> float:
    """The seconds that one inference saves if a task's time falls from ``before`` to ``now``.

    For an alternative, only the part below the time of the task that it would replace counts.
    """
    before, now = (min(cost, state.seconds_to_beat) for cost in (before, now))
    return math.inf if math.isinf(before) else before - now


def _network(states: Sequence[Scheduler.TaskState]) -> float:
    """The network's latency in seconds, as far as known, with the fastest dtype of each operator.

    The tasks may be only the alternatives. The times that these have to beat then stand for the
    original tasks.
    """
    least: dict[str, float] = {}
    for state in states:
        known = (state.seconds_to_beat, state.history[-1] if state.history else math.inf)
        name = state.task.alternative_of or state.task.name
        cost = state.task.weight * min(known)
        least[name] = min(cost, least.get(name, math.inf))
    return sum(cost for cost in least.values() if math.isfinite(cost))
