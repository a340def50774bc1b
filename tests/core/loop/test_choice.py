"""Which of several configurations is chosen where records are shared."""

from __future__ import annotations

import attrs
from chameleon_core.loop.end.comparison import TIE, best_of
from chameleon_core.measurement import Measurement
from hypothesis import given
from hypothesis import strategies as st

BEST = 1e-3


def timed(config, cost, spread=0.0, repeats=9):
    """Repeats evenly spread around a median, by a share of it to either side."""
    half = repeats // 2
    seconds = [cost * (1 + spread * (place - half) / half) for place in range(repeats)]
    return Measurement(config=config, seconds=tuple(seconds))


def test_the_fastest_where_nothing_is_shared():
    found = [timed((0,), 1.001 * BEST), timed((1,), BEST)]
    assert best_of(found, shared=False).config == (1,)
    assert best_of([], shared=True) is None


def test_within_two_percent_the_first_configuration():
    found = [timed((2,), BEST), timed((1,), 1.019 * BEST), timed((0,), 1.021 * BEST)]
    assert best_of(found, shared=True).config == (1,)


def test_intervals_that_overlap_are_ties_where_the_shortest_repeats_agree():
    fastest = Measurement(config=(1,), seconds=(BEST, BEST, BEST, 1.2 * BEST, 1.2 * BEST))
    disturbed = Measurement(config=(0,), seconds=(1.01 * BEST, BEST, *[1.2 * BEST] * 3))
    assert best_of([fastest, disturbed], shared=True).config == (0,)
    slower = Measurement(config=(0,), seconds=(1.1 * BEST, 1.1 * BEST, *[1.2 * BEST] * 3))
    assert best_of([fastest, slower], shared=True).config == (1,)
    clear = timed((0,), 1.10 * BEST, spread=0.01)
    assert best_of([fastest, clear], shared=True).config == (1,)


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
    found = [
        timed((place,), BEST * ((1.0 if step % 2 else 1.1) + 0.002 * step / 60))
        for place, step in enumerate(steps)
    ]
    there = [
        attrs.evolve(one, seconds=tuple(s * (1 + order.uniform(0, TIE / 10)) for s in one.seconds))
        for one in found
    ]
    order.shuffle(there)
    assert best_of(there, shared=True).config == best_of(found, shared=True).config
