"""Times at the usual speed of the cores, on a simulated machine whose speed changes."""

import itertools
import math
from types import SimpleNamespace

import attrs
import pytest
from chameleon_core.plugin_api import Kernel
from chameleon_runners._core_meter import CoreMeter
from chameleon_runners._engine.context import CandidateRun
from chameleon_runners._engine.deadlines import Deadlines
from chameleon_runners._engine.workers import Worker, WorkerEvent
from chameleon_runners._local.context import LocalContext
from chameleon_runners._local.disturbance import LocalDisturbance, SpeedLog
from chameleon_runners._local.job_run import TimingPhase
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._timing import TimingPolicy
from chameleon_runners._worker.command_handler import CommandHandler
from hypothesis import given, settings
from hypothesis import strategies as st

FAST, SHARED = 1.0, 0.5
OPTIONS = LocalOptions(max_repeats=8)
CLOCK_SECONDS, RATE = 1e-4, 2.6e11


class Machine:
    """Computes at one speed for some seconds, then at another for some, and so on."""

    def __init__(self, stretches):
        self.now = 0.0
        self._stretches = itertools.cycle(stretches)
        self._left, self._speed = next(self._stretches)
        self.noise = itertools.cycle([1.0, 1.1, 1.02, 1.15, 1.0])

    def work(self, seconds):
        """Do work that takes ``seconds`` at full speed, and return how long it took."""
        began = self.now
        while seconds > self._left * self._speed:
            seconds -= self._left * self._speed
            self.now += self._left
            self._left, self._speed = next(self._stretches)
        self.now += seconds / self._speed
        self._left -= seconds / self._speed
        return self.now - began

    def wait(self, seconds):
        """Let time pass in which the machine does no work."""
        self.now += seconds
        while seconds > self._left:
            seconds -= self._left
            self._left, self._speed = next(self._stretches)
        self._left -= seconds


class SimulatedKernel(Kernel):
    """Takes some seconds at full speed, a part of which depends on the speed."""

    pause = 0.0

    def __init__(self, machine, seconds, share=1.0):
        self._machine = machine
        self._seconds = seconds
        self._share = share

    def outputs(self):
        return []

    def time(self, number, *, cold_bytes=0):
        self._machine.wait((1.0 - self._share) * number * self._seconds)
        worked = self._machine.work(self._share * number * self._seconds) / number
        return worked + (1.0 - self._share) * self._seconds

    def clock(self):
        self._machine.wait(self.pause)
        # Other programs make a reading slower, never faster.
        rate = RATE * CLOCK_SECONDS / self._machine.work(CLOCK_SECONDS)
        return "known work", rate / next(self._machine.noise)


class SimulatedContext(LocalContext):
    """Answers commands in this process, like a worker on the simulated machine."""

    def clock(self, worker, message, timeout):
        SimulatedKernel.pause = message["clock_pause"] if message["clock"] > 1 else 0.0
        return WorkerEvent(worker=worker, reply=self.pool.handler.answer({**message, **HERE}))


HERE = {"reference": None, "cores": [], "clock_pause": 0.0}


class SimulatedRunner:
    """Times kernels as the runner ``local`` does, batch by batch."""

    def __init__(self, stretches, *, clock=True, shares=(1.0,)):
        self.machine = Machine(stretches)
        self._shares = itertools.cycle(shares)
        self._options = attrs.evolve(OPTIONS, clock=clock)
        self.disturbance = LocalDisturbance(CoreMeter([]))

    def costs(self, batches):
        """The measured seconds of kernels, from their seconds at full speed."""
        costs, best = {}, math.inf
        for batch in batches:
            # Builds take time in which the machine may change its speed.
            self.machine.work(0.5)
            handler = CommandHandler()
            worker = Worker()
            pool = SimpleNamespace(handler=handler, is_alive=lambda _: True)
            context = SimulatedContext(
                pool=pool,
                builders=None,
                options=self._options,
                policy=TimingPolicy.of(self._options),
                reference=SimpleNamespace(path="", tolerance=0.0),
                deadlines=Deadlines(self._options),
                threads=2,
                retries=0,
                watch=None,
                disturbance=self.disturbance,
            )
            phase = TimingPhase(
                context, pending=[], failed=None, best_seconds=best, stopped=lambda: False
            )
            for slot, seconds in enumerate(batch):
                share = next(self._shares)
                handler._kernels[slot] = SimulatedKernel(self.machine, seconds, share)
                phase.built.append(CandidateRun(config=(seconds,), slot=slot, worker=worker))
            for measured in (*phase.first_timings(), *phase.rounds()):
                costs[measured.config[0]] = measured.cost
                best = min(best, measured.cost)
        return costs


def fma(*rates):
    """The reply of a clock that was read at some rates, relative to the full one."""
    return "fma", [RATE * rate for rate in rates]


def tiles(*rates):
    """The reply of a clock of tiles, relative to the full rate of multiply-adds."""
    return "tiles", [RATE * rate for rate in rates]


def ranking(costs):
    return sorted(costs, key=costs.get)


# The kernels differ by 5 % at least. The speed stays for longer than a turn.
KERNELS = st.lists(st.integers(0, 16), min_size=2, max_size=12, unique=True).map(
    lambda powers: [5e-4 * 1.05**power for power in powers]
)
STRETCHES = st.lists(st.floats(0.1, 2.0), min_size=2, max_size=6).map(
    lambda lengths: list(zip(lengths, itertools.cycle((FAST, SHARED)), strict=False))
)


def split(kernels, size=4):
    return [kernels[start : start + size] for start in range(0, len(kernels), size)]


@settings(max_examples=40)
@given(KERNELS, STRETCHES, st.booleans())
def test_a_machine_with_two_speeds_ranks_kernels_like_a_steady_one(kernels, stretches, slow_first):
    if slow_first:
        stretches = [(length, FAST + SHARED - speed) for length, speed in stretches]
    steady = SimulatedRunner([(math.inf, FAST)]).costs(split(kernels))
    changing = SimulatedRunner(stretches).costs(split(kernels))
    assert ranking(steady) == ranking(changing) == sorted(kernels)


@settings(max_examples=20)
@given(st.lists(st.floats(0.02, 0.05), min_size=2, max_size=4))
def test_kernels_that_also_wait_are_compared_at_the_usual_speed(lengths):
    # The host is at one speed for three quarters of the time. At the other, the order changes.
    stretches = [
        stretch for length in lengths for stretch in ((length, FAST), (3.0 * length, SHARED))
    ]
    shares = (1.0, 0.5, 0.9, 0.2)
    batch = [5e-4, 5.6e-4, 6e-4, 6.5e-4]
    steady = SimulatedRunner([(math.inf, SHARED)], shares=shares).costs([batch])
    changing = SimulatedRunner(stretches, shares=shares).costs([batch])
    assert ranking(changing) == ranking(steady) == [6.5e-4, 5.6e-4, 5e-4, 6e-4]


@pytest.mark.parametrize("clock", [True, False])
def test_without_the_clock_a_slow_stretch_hides_the_best_kernel(clock):
    # The second batch, which has the best kernel, meets the slow stretch.
    runner = SimulatedRunner([(0.8, FAST), (math.inf, SHARED)], clock=clock)
    runner.disturbance.speed.resume({"known work": RATE})
    costs = runner.costs([[5.5e-4, 6e-4, 7e-4], [5e-4, 6.5e-4]])
    assert (ranking(costs)[0] == 5e-4) is clock
    if clock:
        assert costs[5e-4] == pytest.approx(5e-4, rel=0.05)
        assert "slower, most at 130" in runner.disturbance.total.clock
    else:
        assert runner.disturbance.total.clock == ""


def test_a_first_timing_is_repeated_while_the_speed_changes():
    runner = SimulatedRunner([(0.505, FAST), (0.008, SHARED), (math.inf, FAST)])
    runner.disturbance.speed.resume({"known work": RATE})
    assert runner.costs([[5e-4]])[5e-4] == pytest.approx(5e-4, rel=0.05)
    assert runner.disturbance.speed.timed_again


def test_readings_during_which_a_thread_lost_its_core_say_nothing():
    log = SpeedLog()
    assert log.relative_speed(fma(1.0, 1.0)) == 1.0
    assert log.relative_speed(fma(0.03, 0.03)) is None
    assert log.relative_speed(fma(0.5, 1.0)) is None
    assert log.at_present(1.0) == 1.0
    assert log.relative_speed(fma(0.5, 0.5)) == 0.5
    assert log.at_present(1.0) == 2.0
    assert log.relative_speed(fma(0.45, 0.49)) == 0.5  # noise


def test_the_usual_speed_is_the_most_frequent_one():
    log = SpeedLog()
    assert not log.knows(fma(1.0))
    # A thread lost its core during the slowest reading.
    assert log.relative_speed(fma(1.0, 0.5, 0.46, 1.02, 0.05, 0.55, 0.5, 1.0, 1.0)) == 2.0
    assert log.knows(fma(1.0))
    assert log.usual == {"fma": 0.5 * RATE}
    assert log.relative_speed(fma(0.5, 0.5)) == 1.0
    assert log.is_worth_waiting(2.0)
    assert not log.is_worth_waiting(1.0)
    assert [log.relative_speed(fma(1.0, 1.0)) for _ in range(19)] == [2.0] * 19
    assert not log.is_worth_waiting(2.0)


def test_a_continued_run_keeps_its_usual_speed():
    first, second = SpeedLog(), SpeedLog()
    assert first.relative_speed(fma(1.0, 0.95)) == 1.0
    second.resume(first.usual)
    assert second.relative_speed(fma(0.5, 0.5)) == 0.5
    assert second.usual == {"fma": RATE}


def test_each_kind_of_instruction_has_its_own_usual_speed():
    log = SpeedLog()
    assert log.relative_speed(("tiles", [10.1 * RATE, 10.1 * RATE])) == 1.0
    assert log.relative_speed(fma(1.0, 1.0)) == 1.0
    assert log.relative_speed(None) == 1.0
    assert log.counts == {"tiles": {"2600": 1}, "fma": {"260": 1}}


def test_instructions_whose_readings_agree_have_one_usual_speed():
    log = SpeedLog()
    assert log.matches(tiles(0.9))
    assert log.relative_speed(fma(1.0, 1.0)) == 1.0
    assert log.matches(tiles(0.9, 0.4))
    # In their first survey, the tiles were slow for most of the time.
    assert log.relative_speed(tiles(0.42, 0.42, 0.42, 0.9, 0.42, 0.42)) == pytest.approx(0.42)
    assert log.relative_speed(tiles(0.98, 0.98)) == 1.0
    assert log.usual == {"fma": RATE, "tiles": RATE}
    again = SpeedLog()
    again.resume(log.usual)
    assert again.relative_speed(tiles(0.5, 0.5)) == again.relative_speed(fma(0.5, 0.5)) == 0.5


def test_a_disturbed_reading_is_no_speed_that_instructions_share():
    log = SpeedLog()
    # A thread lost its core during one reading.
    assert log.relative_speed(fma(1.0, 1.0, 1.0, 0.45, 1.0, 1.0)) == 1.0
    assert not log.matches(tiles(0.42, 0.42))
    assert log.relative_speed(tiles(0.42, 0.42)) == 1.0


def test_tiles_that_were_slow_at_first_join_the_usual_speed():
    log = SpeedLog()
    assert log.relative_speed(fma(1.0, 1.0)) == 1.0
    assert not log.matches(tiles(0.42, 0.43))
    assert log.relative_speed(tiles(0.42, 0.43)) == 1.0
    assert log.relative_speed(tiles(1.02, 1.02)) == 1.0
    assert log.relative_speed(tiles(0.42, 0.42)) == pytest.approx(0.42)
    assert log.usual["tiles"] == log.usual["fma"]


@pytest.mark.parametrize("slow_seconds", [0.2, 1.5, 4.0])
def test_kernels_whose_tiles_are_slow_at_first_are_ranked_like_others(slow_seconds):
    # The tiles get their full rate after a while; multiply-adds always had it.
    runner = SimulatedRunner([(0.5 + slow_seconds, 0.43), (math.inf, FAST)])
    runner.disturbance.speed.relative_speed(("multiply-add", [RATE, RATE]))
    costs = runner.costs([[6e-4, 5e-4], [5.5e-4, 7e-4], [6.5e-4, 4.5e-4]])
    assert costs[4.5e-4] == pytest.approx(4.5e-4, rel=0.05)
    assert runner.disturbance.speed.usual["known work"] == pytest.approx(RATE)


@pytest.mark.parametrize("usual_turn", [0, 1, 2])
@pytest.mark.parametrize("other", [0.5, 2.0])
def test_repeats_at_the_usual_speed_count(usual_turn, other):
    # At half the speed, this kernel takes 1.6 times as long.
    usual, scaled = 1.0, 1.6 ** -math.log2(other)
    candidate = CandidateRun(config=(), slot=0, repeats=(0.7,), speed=2.1)
    candidate.add_turn([0.5] * 3, speed=None)  # the speed changed
    for turn in range(3):
        here = turn == usual_turn
        candidate.add_turn([usual if here else scaled] * 3, speed=1.0 if here else other)
    assert candidate.succeeded().seconds == (1.0,) * 3
    assert candidate.fastest == 1.0
    candidate.merge_turns()
    assert candidate.repeats == (1.0,) * 3
