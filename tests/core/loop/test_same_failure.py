"""What fails alike is told from what fails, whatever the numbers in its words."""

from __future__ import annotations

import pytest
from chameleon_core.measurement import FailureKind, Measurement, convincing, same_failure
from hypothesis import given
from hypothesis import strategies as st


def failed(message="was killed by signal SIGILL", kind=FailureKind.CRASH):
    return Measurement(config=(0,), failure=kind, message=message)


VALID = Measurement(config=(1,), seconds=(1.0,))
OTHERS = [VALID, failed(kind=FailureKind.RUN_ERROR), failed("was killed by signal SIGSEGV")]


@given(st.integers(1, 40), st.integers(1, 40))
def test_as_many_as_are_asked_for_have_to_be_the_same(count, at_least):
    found = same_failure([failed()] * count, at_least)
    assert (found is not None) == (count >= at_least)


@given(st.sampled_from(OTHERS), st.integers(0, 20))
def test_a_single_other_outcome_is_enough_to_go_on(other, place):
    measurements = [failed()] * 20
    measurements.insert(place, other)
    assert same_failure(measurements, 2) is None


def test_numbers_in_the_words_do_not_matter():
    texts = [
        "differs by 0.83, more than the accepted 1e-3",
        "differs by 7.1e2, more than the accepted 1e-3",
    ]
    wrong = [failed(text, FailureKind.WRONG_OUTPUT) for text in texts]
    assert same_failure(wrong, 2) == f"wrong_output: {texts[0]}"
    assert same_failure([failed("")] * 2, 2) == "crash"
    assert same_failure([], 1) is None


@pytest.mark.parametrize(
    ("wanted", "batch_size", "expected"),
    [("auto", 4, 16), ("auto", 64, 128), (5, 64, 5), (None, 4, None)],
)
def test_how_many_are_convincing(wanted, batch_size, expected):
    assert convincing(wanted, batch_size=batch_size) == expected
