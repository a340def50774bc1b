"""The words a run has for its disturbance, and when it warns."""

from __future__ import annotations

import json

import pytest
from chameleon_core.stages import Disturbance
from hypothesis import given
from hypothesis import strategies as st

SUMS = st.builds(
    Disturbance,
    core_seconds=st.integers(0, 100),
    stolen_seconds=st.integers(0, 100),
    others_seconds=st.integers(0, 100),
    pairs=st.integers(0, 100),
    kept=st.integers(0, 100),
)


@given(SUMS, SUMS)
def test_sums_of_several_processes_add_up(one, other):
    both = one + other
    assert both == other + one
    assert both.pairs == one.pairs + other.pairs
    assert one + Disturbance() == one
    assert Disturbance.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_nothing_is_said_of_what_nobody_knows():
    nothing = Disturbance()
    assert (nothing.summary, nothing.disturbed, nothing.trust) == ("", False, None)
    assert nothing.to_json()["others"] is None


@pytest.mark.parametrize(
    ("disturbance", "warns"),
    [
        (Disturbance(core_seconds=100.0, others_seconds=4.0, pairs=10, kept=8), False),
        (Disturbance(core_seconds=100.0, others_seconds=6.0, pairs=10, kept=10), True),
        (Disturbance(core_seconds=100.0, stolen_seconds=6.0), True),
        (Disturbance(core_seconds=100.0, others_seconds=3.0, stolen_seconds=3.0), True),
        (Disturbance(pairs=10, kept=7), True),
    ],
)
def test_a_warning_has_a_reason(disturbance: Disturbance, warns: bool):
    assert disturbance.disturbed == warns
    assert ("idle cores" in disturbance.summary) == warns


def test_shares_are_told_in_words():
    told = Disturbance(
        core_seconds=200.0, stolen_seconds=3.0, others_seconds=50.0, pairs=120, kept=96
    )
    assert told.summary == (
        "While kernels were timed, other processes used 25.0% of their cores and the host kept "
        "1.5%. Leaders that were timed again kept their order in 80% of 120 pairs. "
        "Tune on idle cores before you trust small differences."
    )
