"""What else a network may be tried with."""

import attrs
import hypothesis.strategies as st
import pytest
from chameleon_core._loop.end.comparison import (
    ALTERNATIVES,
    NEARLY,
    SHARE,
    TimeSlot,
    alternatives,
    best_of,
)
from chameleon_core._measurement import FailureKind, Measurement
from hypothesis import given


def _measured(costs):
    return [
        Measurement(config=config, seconds=(cost,))
        if cost
        else Measurement(config=config, failure=FailureKind.CRASH)
        for config, cost in costs.items()
    ]


def test_they_are_nearly_as_fast_and_as_different_as_can_be():
    costs = {
        (0, 0, 0): 1.0,
        (0, 0, 1): 1.01,  # a sibling
        (1, 1, 1): 1.1,  # slower, but another kind of program
        (1, 1, 2): 1.05,
        (2, 2, 2): 2.0,  # hopeless
        (3, 3, 3): 0.0,  # failed
    }
    assert alternatives(_measured(costs), (0, 0, 0)) == ((1, 1, 2), (0, 0, 1))


def test_without_a_winner_there_are_none():
    assert alternatives(_measured({(0,): 1.0}), None) == ()
    assert alternatives(_measured({(0,): 1.0}), (0,)) == ()
    assert alternatives([], (0,)) == ()


@given(
    st.dictionaries(
        st.tuples(*[st.integers(0, 3)] * 3), st.sampled_from([0.0, 1.0, 1.05, 1.1, 1.3]), min_size=1
    )
)
def test_they_are_distinct_valid_and_near(costs):
    valid = {config: cost for config, cost in costs.items() if cost}
    chosen = min(valid, key=valid.get) if valid else None
    result = alternatives(_measured(costs), chosen)
    assert len(set(result)) == len(result) <= ALTERNATIVES
    assert chosen not in result
    assert all(valid[config] <= NEARLY * valid[chosen] for config in result)
    near = sum(cost <= NEARLY * valid[chosen] for cost in valid.values()) if valid else 1
    assert len(result) == min(ALTERNATIVES, near - 1)


BEST = 1e-3


def timed(config, cost, spread=0.0, repeats=9):
    """Repeats evenly spread around a median, by a share of it to either side."""
    half = repeats // 2
    seconds = [cost * (1 + spread * (number - half) / half) for number in range(repeats)]
    return Measurement(config=config, seconds=tuple(seconds))


def test_the_fastest_where_nothing_is_shared():
    assert best_of([timed((0,), 1.001 * BEST), timed((1,), BEST)], shared=False).config == (1,)
    assert best_of([], shared=True) is None


def test_within_two_percent_the_first_configuration():
    result = [timed((2,), BEST), timed((1,), 1.019 * BEST), timed((0,), 1.021 * BEST)]
    assert best_of(result, shared=True).config == (1,)


def test_intervals_that_overlap_are_ties_where_the_shortest_repeats_agree():
    fastest = Measurement(config=(1,), seconds=(BEST, BEST, BEST, 1.2 * BEST, 1.2 * BEST))
    disturbed = Measurement(config=(0,), seconds=(1.01 * BEST, BEST, *[1.2 * BEST] * 3))
    assert best_of([fastest, disturbed], shared=True).config == (0,)
    slower = Measurement(config=(0,), seconds=(1.1 * BEST, 1.1 * BEST, *[1.2 * BEST] * 3))
    assert best_of([fastest, slower], shared=True).config == (1,)
    assert best_of([fastest, timed((0,), 1.10 * BEST, spread=0.01)], shared=True).config == (1,)


def test_noise_makes_no_tie_of_a_kernel_of_half_the_speed():
    fastest, slow = timed((1,), BEST, spread=0.9), timed((0,), 2 * BEST, spread=0.4)
    assert best_of([fastest, slow], shared=True).config == (1,)


def test_what_failed_ties_with_nothing():
    failed = Measurement(config=(0,), failure="crash")
    assert best_of([timed((1,), BEST), failed], shared=True).config == (1,)


costs = st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True)


@given(costs, st.randoms(use_true_random=False))
def test_two_machines_choose_alike_in_any_order_and_with_their_noise(steps, order):
    """Times are well inside the tie or well outside; noise moves none over the border."""
    result = [
        timed((number,), BEST * ((1.0 if step % 2 else 1.1) + 0.002 * step / 60))
        for number, step in enumerate(steps)
    ]
    there = [
        attrs.evolve(
            row,
            seconds=tuple(s * (1 + order.uniform(0, Measurement.TIE / 10)) for s in row.seconds),
        )
        for row in result
    ]
    order.shuffle(there)
    assert best_of(there, shared=True).config == best_of(result, shared=True).config


SECONDS = st.floats(0.1, 1e5)


@given(before=SECONDS, shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_comparisons_that_keep_to_their_share_take_a_quarter_at_most(before, shares):
    now = before
    for number, share in enumerate(shares, 1):
        slot = TimeSlot.among(number, len(shares), before=before, now=now)
        assert (slot.number, slot.of) == (number, len(shares))
        now += share * slot.seconds
    assert now - before <= SHARE * now * (1 + 1e-9)


@given(before=SECONDS, count=st.integers(1, 8))
def test_what_all_of_them_may_take_is_the_whole_quarter(before, count):
    now = before
    for number in range(1, count + 1):
        now += TimeSlot.among(number, count, before=before, now=now).seconds
    assert now - before == pytest.approx(SHARE * now)


def test_one_that_took_too_long_leaves_nothing():
    assert TimeSlot.among(2, 2, before=30.0, now=50.0).seconds == 0.0


def test_one_that_was_known_already_leaves_its_part():
    assert TimeSlot.among(2, 2, before=30.0, now=30.0).seconds == pytest.approx(10.0)
