"""Which task gets the next batch."""

import itertools
import math

import hypothesis.strategies as st
import pytest
from chameleon_core._schedulers import Scheduler
from chameleon_core._schedulers.gradient import Gradient, RoundRobin
from chameleon_core._schedulers.options import GradientOptions
from chameleon_core._task import Task
from hypothesis import given

_NUMBERS = itertools.count()


def _state(
    history,
    *,
    weight=1,
    flop=1e9,
    done=False,
    in_flight=False,
    of="",
    to_beat=math.inf,
    guess=None,
):
    task = Task(
        name=f"t{next(_NUMBERS)}",
        operator="o",
        arguments={},
        target="t",
        flop=flop,
        weight=weight,
        alternative_of=of,
    )
    rounds = len(history)
    return Scheduler.TaskState(
        task=task,
        rounds=rounds,
        measured=rounds,
        history=history,
        done=done,
        in_flight=in_flight,
        seconds_to_beat=to_beat,
        guess=guess,
    )


def _gradient(**options):
    return Gradient(GradientOptions(**options), None)


def test_round_robin_takes_turns_and_skips_what_is_done():
    scheduler = RoundRobin(None, None)
    assert scheduler.next_task([_state([1.0]), _state([]), _state([])]) == 1
    assert scheduler.next_task([_state([1.0]), _state([], done=True), _state([1.0])]) == 0
    assert scheduler.next_task([_state([1.0], done=True)]) is None


def test_gradient_starts_with_a_batch_of_each():
    scheduler = _gradient()
    assert scheduler.next_task([_state([9.0]), _state([]), _state([])]) == 1
    assert scheduler.next_task([_state([9.0]), _state([], done=True), _state([])]) == 2


def test_gradient_goes_on_from_first_guesses_with_the_task_that_has_most_to_gain():
    guessed = [
        _state([1e-3], flop=1e9),
        _state([9e-3], flop=1e9),
        _state([2e-3], flop=1e9, weight=20),
    ]
    assert _gradient().next_task(guessed) == 2
    failed = [*guessed, _state([math.inf])]
    assert _gradient().next_task(failed) == 3, "nothing of it works yet"


def test_tasks_in_flight_are_not_chosen_again():
    flying = _state([9.0, 5.0], in_flight=True)
    for scheduler in (RoundRobin(None, None), _gradient()):
        assert scheduler.next_task([_state([], in_flight=True), _state([9.0, 5.0])]) == 1
        assert scheduler.next_task([flying, _state([9.0, 5.0], weight=0)]) == 1
        assert scheduler.next_task([flying, flying]) is None


def test_gradient_still_counts_what_is_in_flight_as_part_of_the_network():
    # What the waiting task saved lately is much of its own latency, and little of the network's.
    saving = [1.2, 1.1, 1.0]
    heavy = _state([500.0] * 3, weight=9, in_flight=True)
    assert _gradient(stop_gain=0.01).next_task([_state(saving)]) == 0
    assert _gradient(stop_gain=0.01).next_task([_state(saving), heavy]) is None


def test_gradient_prefers_what_weighs_more_in_the_network():
    scheduler = _gradient()
    alike = [4.0, 3.0]
    assert scheduler.next_task([_state(alike), _state(alike, weight=4)]) == 1
    assert scheduler.next_task([_state(alike, weight=4), _state(alike)]) == 0


def test_gradient_prefers_what_fell_lately():
    states = [_state([2.0, 2.0, 2.0]), _state([3.0, 2.5, 2.0])]
    assert _gradient(stop_gain=0.0).next_task(states) == 1


def test_gradient_counts_no_gain_of_the_first_success():
    late, falling = _state([math.inf, 2.0, 2.0]), _state([3.0, 2.5, 2.0])
    for states, chosen in (([late, falling], 1), ([falling, late], 0)):
        assert _gradient(stop_gain=0.0).next_task(states) == chosen


def test_gradient_hopes_for_nothing_from_tasks_at_the_best_throughput():
    # Alike in everything but their operations: the second is as far as a task can be.
    states = [_state([2.0, 1.0], flop=1e9), _state([2.0, 1.0], flop=8e9)]
    assert _gradient().next_task(states) == 0


def test_gradient_hopes_for_nothing_from_tasks_that_are_as_slow_as_their_estimate_says():
    # The first one does half the operations per second, as its estimate says; the last has none.
    slow = _state([4.0], flop=1e9, guess=2.0)
    states = [slow, _state([2.0], flop=1e9, guess=1.0), _state([2.1], flop=1e9, guess=1.0)]
    assert _gradient().next_task(states) == 2
    assert _gradient().next_task([*states, _state([2.9], flop=1e9)]) == 3


@given(
    falls=st.lists(st.tuples(st.floats(0.2, 0.6), st.floats(0.3, 0.9)), min_size=3, max_size=6),
    weight=st.integers(1, 16),
    flop=st.floats(1e-3, 1.0),
)
def test_gradient_soon_leaves_a_task_whose_hope_is_false(falls, weight, flop):
    # The first task never gets faster, but does few operations per second, and weighs much.
    histories = [[1.0] for _ in (None, *falls)]
    gains = sum(share for share, _ in falls)
    while sum(1.0 - history[-1] for history in histories) < 0.8 * gains:
        states = [
            _state(history, flop=flop if number == 0 else 1.0, weight=1 if number else weight)
            for number, history in enumerate(histories)
        ]
        chosen = _gradient(stop_gain=0.0).next_task(states)
        share, rate = falls[chosen - 1] if chosen else (0.0, 0.0)
        least = 1.0 - share
        histories[chosen].append(least + (histories[chosen][-1] - least) * (1.0 - rate))
        assert 2 * len(histories[0]) <= 16 + sum(map(len, histories))


def test_gradient_leaves_stagnating_tasks_alone_and_then_ends():
    flat, falling = [5.0, 5.0, 5.0], [5.0, 4.0, 3.0]
    scheduler = _gradient(window=2, stop_gain=0.01)
    assert scheduler.next_task([_state(flat, weight=9), _state(falling)]) == 1
    assert scheduler.next_task([_state(flat), _state(flat)]) is None
    assert _gradient(stop_gain=0.0).next_task([_state(flat), _state(flat)]) == 0


def test_gradient_gives_a_task_without_success_some_more_tries():
    nothing = [math.inf] * 3
    assert _gradient().next_task([_state([1.0, 1.0]), _state(nothing)]) == 1
    assert _gradient().next_task([_state([1.0, 1.0, 1.0]), _state([math.inf] * 9)]) is None


@given(
    histories=st.lists(
        st.lists(st.sampled_from([math.inf, 8.0, 4.0, 2.0, 1.0]), max_size=6),
        min_size=1,
        max_size=5,
    ),
    done=st.lists(st.booleans(), min_size=5, max_size=5),
    trust=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_gradient_chooses_a_task_that_is_not_done(histories, done, trust):
    states = [
        _state(sorted(history, reverse=True), done=over)
        for history, over in zip(histories, done, strict=False)
    ]
    chosen = _gradient(trust=trust, stop_gain=0.0).next_task(states)
    waiting = [index for index, state in enumerate(states) if not state.done]
    assert (chosen in waiting) if waiting else (chosen is None)


def test_gradient_ends_whatever_the_costs_do():
    states = [[9.0], [7.0]]
    scheduler = _gradient()
    for _ in range(1000):
        chosen = scheduler.next_task([_state(history) for history in states])
        if chosen is None:
            return
        states[chosen].append(states[chosen][-1] * (1 - 0.3 ** len(states[chosen])))
    pytest.fail("it never ends")


def test_gradient_counts_of_an_alternative_what_falls_below_what_it_has_to_beat():
    # The first one saves four seconds of its own, of which the network would see none.
    far = _state([9.0, 7.0, 5.0], of="a", to_beat=2.0, weight=5)
    near = _state([3.0, 2.0, 1.9], of="b", to_beat=2.0)
    assert _gradient().next_task([far, near]) == 1
    assert _gradient().next_task([far]) is None
    assert _gradient(stop_gain=0.0).next_task([far]) == 0, "the whole budget is wanted"


@pytest.mark.parametrize(("guess", "worthwhile"), [(1.9, True), (2.1, False)])
def test_gradient_leaves_alone_what_no_hope_brings_below_what_it_has_to_beat(guess, worthwhile):
    # After two batches one more is hoped to halve the cost at best.
    chosen = _gradient().next_task([_state([guess, guess], of="a", to_beat=1.0)])
    assert chosen == (0 if worthwhile else None)


def test_gradient_counts_an_operator_once_in_whatever_type_is_fastest():
    # Saves 0.02 a batch: much of a network of 1.5 s, too little of one of 4.5 s.
    others = [_state([1.0], of="b", to_beat=9.0, done=True) for _ in range(3)]
    saving = _state([0.54, 0.52, 0.5], of="a", to_beat=9.0)
    assert _gradient(stop_gain=0.01).next_task([saving, *others]) == 0
    others = [_state([1.0], of=name, to_beat=9.0, done=True) for name in "bcd"]
    assert _gradient(stop_gain=0.01).next_task([saving, *others]) is None
