"""Which of several configurations is chosen where records are shared."""

from __future__ import annotations

import attrs
from chameleon_core.loop.end.choice import TIE, best_of
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


def test_intervals_that_overlap_are_ties_and_others_are_not():
    noisy, clear = timed((0,), 1.10 * BEST, spread=0.4), timed((0,), 1.10 * BEST, spread=0.01)
    assert best_of([timed((1,), BEST), noisy], shared=True).config == (0,)
    assert best_of([timed((1,), BEST), clear], shared=True).config == (1,)


def test_what_failed_ties_with_nothing():
    failed = Measurement(config=(0,), failure="crash")
    assert best_of([timed((1,), BEST), failed], shared=True).config == (1,)


costs = st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True)


@given(costs, st.randoms(use_true_random=False))
def test_two_machines_choose_alike_in_any_order_and_with_their_noise(steps, order):
    """Times are grouped well inside and well outside the tie; noise moves none over the border."""
    found = [
        timed((place,), BEST * (1.0 + (0.002 if step % 2 else 0.1) * step / 60))
        for place, step in enumerate(steps)
    ]
    there = [
        attrs.evolve(one, seconds=tuple(s * (1 + order.uniform(0, TIE / 10)) for s in one.seconds))
        for one in found
    ]
    near = [one for one in found if one.cost <= BEST * 1.004]
    if near:
        order.shuffle(there)
        assert best_of(there, shared=True).config == best_of(found, shared=True).config
