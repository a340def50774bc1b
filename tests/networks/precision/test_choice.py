"""The choice of types: against all assignments of small networks, and bounds on large ones."""

import itertools

import numpy as np
import pytest
from chameleon_networks._precision.choice import DtypeChoice, Tensor
from chameleon_networks._precision.pareto_front import spread_evenly
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
            producer=None if index < 0 else index,
            consumers=tuple(
                int(reader)
                for reader in range(index + 1, operators)
                if reader == index + 1 or rng.random() < 0.3
            ),
            conversions=rng.uniform(0.01, 0.4, (kinds, kinds)).round(2)[form][:, form] * converted,
            in_float32=bool(rng.random() < 0.2),
        )
        for index in range(-1, operators)
    ]
    return seconds, errors, tensors


def fastest(front, bound):
    """The fastest assignment of a front within a bound, which at least one holds."""
    return min((point for point in front if point.error <= bound), key=lambda point: point.seconds)


def brute_force(choice):
    able = [np.flatnonzero(np.isfinite(row)) for row in choice.seconds]
    return [choice.assignment(types) for types in itertools.product(*able)]


def _independently(seconds, errors, tensors, types):
    """Error and seconds of one assignment, written down without arrays."""
    error = sum(errors[index, kind] for index, kind in enumerate(types))
    total = sum(seconds[index, kind] for index, kind in enumerate(types))
    for tensor in tensors:
        form = 0 if tensor.producer is None else types[tensor.producer]
        read = {types[r] for r in tensor.consumers} | ({0} if tensor.in_float32 else set())
        # Types that read the same have one form, whose conversion is paid once.
        forms = {int(np.flatnonzero(tensor.conversions[kind] == 0.0)[0]) for kind in read}
        total += sum(tensor.conversions[form, kind] for kind in forms)
    return error, total


@settings(max_examples=60, deadline=None)
@given(networks())
def test_each_conversion_is_paid_once(network):
    choice = DtypeChoice(*network)
    for point in brute_force(choice)[:50]:
        error, seconds = _independently(*network, point.types)
        assert point.error == pytest.approx(error)
        assert point.seconds == pytest.approx(seconds)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_the_front_is_that_of_all_assignments(network):
    choice = DtypeChoice(*network)
    front, everything = choice.front(), brute_force(choice)
    for bound in [0.0, *np.linspace(0.1, 6.0, 20)]:
        best = min(point.seconds for point in everything if point.error <= bound + 1e-12)
        assert fastest(front, bound + 1e-12).seconds == pytest.approx(best)


@settings(max_examples=30, deadline=None)
@given(networks())
def test_a_front_is_monotone_and_begins_with_float32(network):
    choice = DtypeChoice(*network)
    front = choice.front()
    assert front[0].error == 0.0
    assert choice.assignment(front[0].types) == front[0]
    for point, following in itertools.pairwise(front):
        assert point.error < following.error
        assert following.seconds < point.seconds


def _large(operators=60, **how):
    """A network of blocks with a residual each, as a row of bottlenecks has them."""
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0.1, 1.0, (operators, 3))
    errors = rng.uniform(1e-4, 1e-2, (operators, 3))
    errors[:, 0] = 0.0
    conversions = _converting(3, 0.1)
    tensors = [
        Tensor(
            producer=index,
            consumers=(index + 1, *((index + 3,) if index % 3 == 0 else ())),
            conversions=conversions,
        )
        for index in range(operators - 4)
    ]
    return DtypeChoice(seconds, errors, tensors, **how)


def test_where_fronts_are_thinned_the_bound_and_the_single_types_still_hold():
    wide, thinned = _large(), _large(labels=300)
    best = {bound: fastest(wide.front(), bound).seconds for bound in (0.02, 0.1)}
    for bound, exact in best.items():
        chosen = fastest(thinned.front(), bound)
        assert chosen.error <= bound
        assert exact <= chosen.seconds <= 1.05 * exact
        singles = [thinned.uniform(kind) for kind in range(3)]
        assert all(chosen.seconds <= single.seconds for single in singles if single.error <= bound)


@settings(max_examples=40, deadline=None)
@given(networks())
def test_easing_ends_in_float32_and_never_adds_error(network):
    choice = DtypeChoice(*network)
    types = choice.front()[-1].types
    before = choice.assignment(types).error
    for _ in range(len(types)):
        following = choice.revert_one(types)
        if following is None:
            break
        assert sum(map(bool, following)) == sum(map(bool, types)) - 1
        after = choice.assignment(following).error
        assert after <= before + 1e-12
        types, before = following, after
    assert not any(types)
    assert choice.revert_one(types) is None


def test_the_operator_that_adds_most_error_for_what_it_saves_goes_back_first():
    seconds = np.array([[1.0, 0.5], [1.0, 0.1], [1.0, 1.2]])
    choice = DtypeChoice(seconds, np.array([[0.0, 0.3], [0.0, 0.4], [0.0, 0.01]]), [])
    assert choice.revert_one((1, 1, 1)) == (1, 1, 0), "it saves nothing"
    assert choice.revert_one((1, 1, 0)) == (0, 1, 0)


def test_an_operator_without_a_time_in_float32_is_refused():
    with pytest.raises(ValueError, match="no time in float32"):
        DtypeChoice(np.array([[np.inf, 1.0]]), np.zeros((1, 2)), [])
    with pytest.raises(ValueError, match="shape"):
        DtypeChoice(np.ones(3), np.ones(3), [])


def test_points_are_spread_over_the_seconds_with_both_ends():
    front = _large(operators=20).front()
    few = spread_evenly(front, 8)
    assert (few[0], few[-1]) == (front[0], front[-1])
    assert len(few) <= 8 + 1
    assert spread_evenly(few, 20) == few
