"""Wrong outputs are noticed whatever they are, and the tasks to blame are found."""

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_networks._evaluation import verify
from hypothesis import given
from hypothesis import strategies as st

SAMPLE = [np.array([1.0, -2.0, 4.0], np.float32)]


def test_a_right_network_has_a_small_error():
    verdict = verify.compare(lambda x: [x[0] * np.float32(1 + 1e-6)], [SAMPLE], [SAMPLE])
    assert verdict.problem is None
    assert verdict.max_relative_error is not None
    assert verdict.max_relative_error < 1e-5


def test_wrong_networks_are_noticed():
    def dead(_):
        raise ChameleonError("it died")

    for run, words in (
        (lambda x: [x[0] + 1], "off by 2.5e-01"),
        (lambda x: [x[0] * np.nan], "off by inf"),
        (lambda x: [x[0][:2]], "shapes"),
        (lambda x: [x[0], x[0]], "shapes"),
        (dead, "it died"),
    ):
        verdict = verify.compare(run, [SAMPLE], [SAMPLE])
        assert verdict.problem is not None
        assert words in verdict.problem


@pytest.mark.parametrize("number", [-np.inf, np.nan])
def test_equal_infinities_and_nan_are_no_difference(number):
    masked = [np.array([number, 4.0, 1.0], np.float32)]
    assert verify.compare(lambda _: masked, [SAMPLE], [masked]).max_relative_error == 0.0
    assert verify.compare(lambda _: SAMPLE, [SAMPLE], [masked]).problem is not None
    assert verify.compare(lambda _: masked, [SAMPLE], [SAMPLE]).problem is not None


def test_errors_are_divided_by_given_scales():
    verdict = verify.compare(lambda x: [x[0] + 1], [SAMPLE], [SAMPLE], tolerance=0.2, scales=[10.0])
    assert verdict.max_relative_error == pytest.approx(0.1)
    assert verdict.problem is None


class _Exact:
    """Answers in float64 that are off by so much; counts how often it was asked."""

    def __init__(self, off):
        self.off = off
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return None if self.off is None else [[SAMPLE[0].astype(np.float64) + self.off]]


def _off(by):
    """A network whose outputs are off by a part of the largest one, 4."""
    return lambda x: [x[0] + np.float32(4 * by)]


def test_exact_answers_are_asked_for_where_they_matter_and_once():
    exact = _Exact(4 * 0.01)
    expected = verify.Expected([SAMPLE], [SAMPLE], exact)
    assert expected.verdict(_off(0.0)).problem is None
    assert expected.verdict(_off(0.3)).problem is not None
    assert (exact.asked, expected.tolerance) == (0, verify.TOLERANCE)
    for _ in range(2):
        assert expected.verdict(_off(0.015)).problem is None
        assert expected.wrong is None
        assert expected.verdict(_off(0.05)).problem is not None
        assert expected.wrong == (SAMPLE, 0)
    assert exact.asked == 1
    assert expected.tolerance == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("off", "tolerance"), [(0.0, verify.TOLERANCE), (4.0, verify.LARGEST_TOLERANCE)]
)
def test_rounding_excuses_neither_nothing_nor_everything(off, tolerance):
    expected = verify.Expected([SAMPLE], [SAMPLE], _Exact(off))
    problem = expected.verdict(_off(0.09)).problem
    assert expected.tolerance == tolerance
    assert (problem is None) == (tolerance > verify.TOLERANCE)
    assert expected.verdict(_off(0.11)).problem is not None


@pytest.mark.parametrize("off", [None, float("nan"), float("inf")])
def test_without_exact_answers_nothing_is_excused(off):
    expected = verify.Expected([SAMPLE], [SAMPLE], _Exact(off))
    assert expected.verdict(_off(0.01)).problem is not None
    assert expected.tolerance == verify.TOLERANCE


def test_the_sentence_says_how_far_and_what_is_allowed():
    said = verify.Conditioning(own_error=0.02).sentence("torch")
    assert "torch in float32 are off by 2.0e-02" in said
    assert "4e-02 is allowed" in said


def test_parts_allow_a_multiple_of_the_rounding_error():
    expected = verify.Expected([SAMPLE], [SAMPLE], _Exact(4 * 0.08))
    assert expected.amplifies
    assert expected.tolerance_of_parts == expected.tolerance == verify.LARGEST_TOLERANCE
    expected.conditioning = attrs.evolve(expected.conditioning, parts=3, largest_error=5e-4)
    assert expected.tolerance == verify.LARGEST_TOLERANCE
    assert expected.tolerance_of_parts == pytest.approx(8 * 0.08, rel=0.1)
    assert "each of 3 parts" in expected.remark("torch")
    assert "errors of at most 5.0e-04" in expected.remark("torch")


def test_a_quantized_network_may_be_off_by_steps():
    exact = _Exact(4 * 0.03)
    expected = verify.Expected([SAMPLE], [SAMPLE], exact, rounded=True)
    assert expected.verdict(_off(0.025)).problem is None
    assert (exact.asked, expected.tolerance) == (0, verify.QUANTIZED_TOLERANCE)
    assert expected.verdict(_off(0.05)).problem is None
    assert expected.verdict(_off(0.07)).problem is not None
    assert "with inputs that change by 8e-06" in expected.conditioning.sentence("torch")


def test_inputs_are_nudged_but_not_whole_numbers():
    real, whole = np.linspace(-3, 3, 9, dtype=np.float32), np.arange(4)
    changed, same = verify.perturbed([real, whole])
    assert changed.dtype == real.dtype
    np.testing.assert_allclose(changed, real, rtol=2 * verify.PERTURBATION)
    assert (changed != real).sum() == 8
    np.testing.assert_array_equal(same, whole)


@given(st.integers(1, 20), st.data())
def test_of_guilty_tasks_one_is_named(count, data):
    keys = [f"task{number}" for number in range(count)]
    culprits = data.draw(st.sets(st.sampled_from(keys), min_size=1))
    [named] = verify.find_failing(keys, lambda enabled: not culprits.isdisjoint(enabled))
    assert named in culprits


def test_tasks_that_fail_together_only_are_all_named():
    keys = ["a", "b", "c", "d"]
    assert verify.find_failing(keys, lambda enabled: {"a", "d"} <= enabled) == keys


def test_a_graph_that_fails_without_kernels_accuses_none():
    assert verify.find_failing(["a", "b"], lambda _: True) == []
