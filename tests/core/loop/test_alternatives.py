"""What else a network may be tried with."""

from __future__ import annotations

import hypothesis.strategies as st
from chameleon_core.loop.end.comparison import ALTERNATIVES, NEARLY, alternatives
from chameleon_core.measurement import FailureKind, Measurement
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
    found = alternatives(_measured(costs), chosen)
    assert len(set(found)) == len(found) <= ALTERNATIVES
    assert chosen not in found
    assert all(valid[config] <= NEARLY * valid[chosen] for config in found)
    near = sum(cost <= NEARLY * valid[chosen] for cost in valid.values()) if valid else 1
    assert len(found) == min(ALTERNATIVES, near - 1)
