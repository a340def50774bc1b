"""The schedulers ``round-robin`` and ``gradient``."""

from __future__ import annotations

import math
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

    This is Ansor's task scheduler (Zheng et al., OSDI 2020, section 6), which MetaSchedule uses
    too. The scheduler estimates the gain of one more batch from the gain of the last batches, and
    from two optimistic bounds. In the first bound, a task's time falls in inverse proportion to its
    batches. In the second bound, the task reaches the operations per second of the network's
    fastest task. Every batch counts as equally long, because a resumed run must not depend on a
    clock.

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
        return max(paying, key=lambda index: self._gain(states[index], states), default=None)

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
        before = state.history[-1 - min(self._options.window, len(state.history) - 1)]
        lately = _below(state, before, now) / self._options.window
        fastest = max(other.task.flop / other.history[-1] for other in states if other.history)
        reachable = self._options.headroom * state.task.flop / fastest if fastest > 0.0 else 0.0
        saved = max(0.0, min(now / max(1, len(state.history)), now - reachable))
        hoped = _below(state, now, now - saved)
        trust = self._options.trust
        gain = (1.0 - trust) * hoped
        if trust > 0.0:
            gain += trust * lately
        return state.task.weight * gain


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
