"""The clock policy, on kernels whose times are scripted."""

import itertools
import math

import pytest
from chameleon_core.plugin_api import Kernel
from chameleon_runners._timing import (
    Repeats,
    TimingPolicy,
    counted_repeats,
    has_converged,
    time_kernel,
)
from hypothesis import given
from hypothesis import strategies as st

POLICY = TimingPolicy(
    repeat_seconds=0.01, min_repeats=5, max_repeats=12, spread=0.01, slow_factor=2.0
)


class ScriptedKernel(Kernel):
    """Takes ``seconds`` times the next factor of the script; counts its runs."""

    def __init__(self, seconds, factors):
        self._seconds = seconds
        self._factors = itertools.cycle(factors)
        self.numbers: list[int] = []
        self.cold: set[int] = set()

    def outputs(self):
        return []

    def time(self, number, *, cold_bytes=0):
        self.numbers.append(number)
        self.cold.add(cold_bytes)
        return self._seconds * next(self._factors)


def test_a_quiet_machine_needs_the_fewest_repeats():
    kernel = ScriptedKernel(0.002, [1.0])
    timing = time_kernel(kernel, POLICY, math.inf)
    assert timing.number == 5
    assert kernel.numbers[3:] == [5] * 5
    assert set(timing.seconds) == {0.002}


def test_repeats_go_on_until_some_agree():
    noisy_kernel = ScriptedKernel(0.002, [1.0, 1.5, 1.2, 1.9, 1.3, 1.7, 1.4])
    noisy = time_kernel(noisy_kernel, POLICY, math.inf)
    assert len(noisy_kernel.numbers) - 3 == POLICY.max_repeats
    assert len(noisy.seconds) < POLICY.max_repeats


def test_a_disturbed_stretch_does_not_count():
    kernel = ScriptedKernel(0.002, [1.0] * 5 + [3.0, 3.0, 3.0] + [1.0] * 20)
    assert max(time_kernel(kernel, POLICY, math.inf).seconds) == 0.002


@pytest.mark.parametrize(("best", "most"), [(0.0009, 8), (0.0001, 4)], ids=["slow", "absurd"])
def test_a_clearly_slower_kernel_runs_briefly(best, most):
    kernel = ScriptedKernel(0.002, [1.0])
    assert time_kernel(kernel, POLICY, best).seconds == (0.002,)
    assert sum(kernel.numbers) <= most


def test_a_kernel_disturbed_for_a_while_is_not_called_slow():
    timing = time_kernel(ScriptedKernel(0.002, [5.0] * 6 + [1.0] * 40), POLICY, 0.002)
    assert len(timing.seconds) >= 3
    assert timing.seconds[0] == 0.002


def test_a_disturbed_probe_does_not_end_a_good_kernel():
    timing = time_kernel(ScriptedKernel(0.002, [9.0, 9.0, 9.0] + [1.0] * 20), POLICY, 0.002)
    assert timing.seconds[0] == 0.002
    assert len(timing.seconds) >= 3


def test_a_kernel_not_near_the_best_gets_three_repeats():
    kernel = ScriptedKernel(0.002, [1.0, 1.05, 1.02])
    assert len(time_kernel(kernel, POLICY, 0.0018).seconds) == 3
    assert len(kernel.numbers) == 6


def test_the_first_run_is_discarded():
    kernel = ScriptedKernel(0.002, [50.0] + [1.0] * 30)
    assert max(time_kernel(kernel, POLICY, 0.002).seconds) == 0.002


def test_cold_bytes_reach_every_run():
    policy = TimingPolicy(
        repeat_seconds=0.01,
        min_repeats=2,
        max_repeats=2,
        spread=0.01,
        slow_factor=2.0,
        cold_bytes=7,
    )
    kernel = ScriptedKernel(0.002, [1.0])
    time_kernel(kernel, policy, math.inf)
    assert kernel.cold == {7}


@pytest.mark.parametrize(
    ("repeat_seconds", "expected"),
    [(0.006, 1), (0.001, 6), (0.0015, 4), (10.0, 1), (math.inf, 1), (1e-9, 12)],
)
def test_repeats_fill_a_turn(repeat_seconds, expected):
    policy = TimingPolicy(
        repeat_seconds=0.0005, min_repeats=3, max_repeats=9, spread=0.01, slow_factor=2.0
    )
    assert policy.repeats_per_turn(repeat_seconds) == expected


def test_a_kernel_repeats_by_timing_one_after_the_other():
    kernel = ScriptedKernel(1.0, [1.0, 2.0, 3.0])
    assert kernel.repeats(7, 3, cold_bytes=5) == (1.0, 2.0, 3.0)
    assert kernel.numbers == [7, 7, 7]
    assert kernel.cold == {5}


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40))
def test_undisturbed_keeps_the_fastest_in_order(repeats):
    stored = counted_repeats(repeats)
    assert min(repeats) in stored
    assert len(stored) >= min(3, len(repeats))
    left = [r for r in repeats if r not in stored]
    assert all(r > max(stored) for r in left)
    assert list(stored) == [r for r in repeats if r <= max(stored)]


SECONDS = st.lists(st.floats(1e-6, 1.0), max_size=20)


@given(SECONDS, SECONDS)
def test_disturbed_repeats_count_only_if_there_are_too_few_others(undisturbed, disturbed):
    if len(undisturbed) >= 3:
        assert counted_repeats(undisturbed, disturbed) == counted_repeats(undisturbed)
    elif undisturbed or disturbed:
        assert counted_repeats(undisturbed, disturbed) == counted_repeats(
            [*undisturbed, *disturbed]
        )


class Switches:
    """Counts a switch during each run of a kernel that takes longer than it should."""

    def __init__(self, kernel, during):
        self._kernel = kernel
        self._during = during

    def __call__(self):
        return sum(run < len(self._kernel.numbers) for run in self._during)


@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=30), st.floats(1e-4, 1.0))
def test_without_switches_timing_is_what_it_was(factors, best):
    kernels = [ScriptedKernel(0.002, factors) for _ in range(2)]
    quiet = time_kernel(kernels[0], POLICY, best, lambda: 7)
    assert quiet == time_kernel(kernels[1], POLICY, best)
    assert kernels[0].numbers == kernels[1].numbers


def test_repeats_taken_with_a_switch_are_kept_apart():
    kernel = ScriptedKernel(1.0, [1.0, 2.0, 3.0, 4.0])
    repeats = Repeats(kernel, 1, 0, switches=Switches(kernel, {2}))
    for count in (2, 1, 1):
        repeats.take(count)
    assert (repeats.undisturbed, repeats.disturbed, len(repeats)) == ([1.0, 2.0, 4.0], [3.0], 4)


def test_equal_repeats_are_not_believed_if_all_were_disturbed():
    # All of them share a core with somebody, so that three agree on twice the time.
    factors = [1.0] * 3 + [2.0] * 6 + [1.0] * 30
    kernel = ScriptedKernel(0.002, factors)
    assert time_kernel(kernel, POLICY, math.inf).seconds == (0.004,) * 5
    kernel = ScriptedKernel(0.002, factors)
    timing = time_kernel(kernel, POLICY, math.inf, Switches(kernel, set(range(3, 9))))
    assert timing.seconds == (0.002,) * 3
    assert len(kernel.numbers) == 3 + 9


def test_after_a_switch_each_repeat_is_told_from_the_others():
    kernel = ScriptedKernel(0.002, [1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 1.0])
    counts = []
    used = kernel.repeats
    kernel.repeats = lambda number, count, **more: (
        counts.append(count) or used(number, count, **more)
    )
    time_kernel(kernel, POLICY, math.inf, Switches(kernel, {3}))
    assert counts == [3, 1, 1, 1]


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ([1.0, 1.0], False),
        ([1.0, 1.005, 1.009], True),
        ([1.0, 1.0, 1.02], False),
        ([2.0, 1.0, 1.0, 5.0, 1.0], True),
    ],
)
def test_settled(repeats, expected):
    assert has_converged(repeats, 0.01) is expected
