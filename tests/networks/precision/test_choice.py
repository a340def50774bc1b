"""The choice of types: against all assignments of small networks, and bounds on large ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chameleon_networks.precision.choice import Tensor, TypeChoice
from chameleon_networks.precision.fronts import spread
from hypothesis import given, settings
from hypothesis import strategies as st


def _converting(kinds, seconds):
    return seconds * (1.0 - np.eye(kinds))


@st.composite
def networks(draw, most=6):
    """Times, errors and tensors; residuals and outputs in the middle among them."""
    operators, kinds = draw(st.integers(1, most)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    seconds = rng.uniform(0.1, 1.0, (operators, kinds)).round(2)
    seconds[:, 1:][rng.random((operators, kinds - 1)) < 0.15] = np.inf
    errors = rng.uniform(0.0, 1.0, (operators, kinds)).round(2)
    errors[:, 0] = 0.0
    # The last two types may read the same, as int8 and int7 do.
    form = np.arange(kinds) if draw(st.booleans()) else np.minimum(np.arange(kinds), 1)
    converted = form[:, None] != form
    tensors = [
        Tensor(
            producer=None if place < 0 else place,
            consumers=tuple(
                int(one)
                for one in range(place + 1, operators)
                if one == place + 1 or rng.random() < 0.3
            ),
            conversions=rng.uniform(0.01, 0.4, (kinds, kinds)).round(2)[form][:, form] * converted,
            in_float32=bool(rng.random() < 0.2),
        )
        for place in range(-1, operators)
    ]
    return seconds, errors, tensors


def fastest(front, bound):
    """The fastest assignment of a front within a bound, which at least one holds."""
    return min((one for one in front if one.error <= bound), key=lambda one: one.seconds)


def brute_force(made):
    able = [np.flatnonzero(np.isfinite(row)) for row in made.seconds]
    return [made.assignment(types) for types in itertools.product(*able)]


def _independently(seconds, errors, tensors, types):
    """Error and seconds of one assignment, written down without arrays."""
    error = sum(errors[place, kind] for place, kind in enumerate(types))
    total = sum(seconds[place, kind] for place, kind in enumerate(types))
    for tensor in tensors:
        made = 0 if tensor.producer is None else types[tensor.producer]
        read = {types[one] for one in tensor.consumers} | ({0} if tensor.in_float32 else set())
        # Types that read the same have one form, whose conversion is paid once.
        forms = {int(np.flatnonzero(tensor.conversions[kind] == 0.0)[0]) for kind in read}
        total += sum(tensor.conversions[made, kind] for kind in forms)
    return error, total


@settings(max_examples=60, deadline=None)
@given(networks())
def test_each_conversion_is_paid_once(network):
    made = TypeChoice(*network)
    for found in brute_force(made)[:50]:
        error, seconds = _independently(*network, found.types)
        assert found.error == pytest.approx(error)
        assert found.seconds == pytest.approx(seconds)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_the_front_is_that_of_all_assignments(network):
    made = TypeChoice(*network)
    front, everything = made.front(), brute_force(made)
    for bound in [0.0, *np.linspace(0.1, 6.0, 20)]:
        best = min(one.seconds for one in everything if one.error <= bound + 1e-12)
        assert fastest(front, bound + 1e-12).seconds == pytest.approx(best)


@settings(max_examples=15, deadline=None)
@given(networks(most=10), st.floats(0.0, 5.0))
def test_within_a_bound_nothing_is_faster(network, bound):
    made = TypeChoice(*network)
    found = fastest(made.front(bound=bound), bound)
    assert found.error <= bound
    for kind in range(made.seconds.shape[1]):
        single = made.uniform(kind)
        assert single.error > bound or found.seconds <= single.seconds + 1e-12
    rows = np.array(list(itertools.product(range(made.seconds.shape[1]), repeat=len(made.seconds))))
    errors, seconds = made.evaluated(rows[:: max(1, len(rows) // 20_000)].astype(np.int8))
    assert found.seconds <= seconds[errors <= bound].min(initial=np.inf) + 1e-12


@settings(max_examples=30, deadline=None)
@given(networks(), st.floats(0.0, 3.0))
def test_a_front_is_monotone_within_its_bound_and_begins_with_float32(network, bound):
    made = TypeChoice(*network)
    front = made.front(bound=bound)
    assert front[0].error == 0.0
    assert made.assignment(front[0].types) == front[0]
    for one, following in itertools.pairwise(front):
        assert one.error < following.error <= bound
        assert following.seconds < one.seconds


def _large(operators=60, **how):
    """A network of blocks with a residual each, as a row of bottlenecks has them."""
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0.1, 1.0, (operators, 3))
    errors = rng.uniform(1e-4, 1e-2, (operators, 3))
    errors[:, 0] = 0.0
    conversions = _converting(3, 0.1)
    tensors = [
        Tensor(
            producer=place,
            consumers=(place + 1, *((place + 3,) if place % 3 == 0 else ())),
            conversions=conversions,
        )
        for place in range(operators - 4)
    ]
    return TypeChoice(seconds, errors, tensors, **how)


def test_where_fronts_are_thinned_the_bound_and_the_single_types_still_hold():
    wide, made = _large(), _large(labels=300)
    best = {bound: fastest(wide.front(bound=bound), bound).seconds for bound in (0.02, 0.1)}
    for bound, exact in best.items():
        found = fastest(made.front(bound=bound), bound)
        assert found.error <= bound
        assert exact <= found.seconds <= 1.05 * exact
        singles = [made.uniform(kind) for kind in range(3)]
        assert all(found.seconds <= one.seconds for one in singles if one.error <= bound)


@settings(max_examples=40, deadline=None)
@given(networks())
def test_easing_ends_in_float32_and_never_adds_error(network):
    made = TypeChoice(*network)
    types = made.front()[-1].types
    before = made.assignment(types).error
    for _ in range(len(types)):
        following = made.eased(types)
        if following is None:
            break
        assert sum(map(bool, following)) == sum(map(bool, types)) - 1
        after = made.assignment(following).error
        assert after <= before + 1e-12
        types, before = following, after
    assert not any(types)
    assert made.eased(types) is None


def test_the_operator_that_adds_most_error_for_what_it_saves_goes_back_first():
    seconds = np.array([[1.0, 0.5], [1.0, 0.1], [1.0, 1.2]])
    errors = np.array([[0.0, 0.3], [0.0, 0.4], [0.0, 0.01]])
    made = TypeChoice(seconds, errors, [])
    assert made.eased((1, 1, 1)) == (1, 1, 0), "it saves nothing"
    assert made.eased((1, 1, 0)) == (0, 1, 0)


def test_an_operator_without_a_time_in_float32_is_refused():
    with pytest.raises(ValueError, match="no time in float32"):
        TypeChoice(np.array([[np.inf, 1.0]]), np.zeros((1, 2)), [])
    with pytest.raises(ValueError, match="shape"):
        TypeChoice(np.ones(3), np.ones(3), [])


def test_points_are_spread_over_the_seconds_with_both_ends():
    made = _large(operators=20)
    front = made.front()
    few = spread(front, 8)
    assert (few[0], few[-1]) == (front[0], front[-1])
    assert len(few) <= 8 + 1
    assert spread(few, 20) == few
