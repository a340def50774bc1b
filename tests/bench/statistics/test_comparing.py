"""Statistics against values worked out by hand."""

import math

import numpy as np
import pytest
from chameleon_bench._statistics.contrasts import geometric_ratio, holm, paired_p

INF = math.inf


def test_wilcoxon_of_six_wins_is_two_in_sixty_four():
    # All six differences have one sign: p = 2 / 2**6.
    assert paired_p([1, 2, 3, 4, 5, 6], [2, 4, 6, 8, 10, 12]) == pytest.approx(2 / 64)


def test_a_censored_run_loses_to_every_other_one():
    assert paired_p([1, 2, 3, 4, 5, 6], [2, 4, 6, 8, 10, INF]) == pytest.approx(2 / 64)


def test_ties_say_nothing():
    assert paired_p([1, INF, 3], [1, INF, 3]) == 1.0
    assert paired_p([1.0], [2.0]) is None


def test_holm_by_hand():
    # Sorted .01 .02 .03 .04 times 4 3 2 1, never falling.
    assert holm([0.03, 0.01, None, 0.04, 0.02]) == pytest.approx([0.06, 0.04, None, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


def test_the_ratio_is_a_geometric_mean_over_tasks():
    ratio = geometric_ratio({"a": ([2.0] * 3, [1.0] * 3), "b": ([8.0] * 3, [1.0] * 3)})
    assert ratio.mean == pytest.approx(4.0)
    assert (ratio.low, ratio.high) == pytest.approx((4.0, 4.0))
    assert ratio.tasks == 2


def test_a_task_without_two_medians_is_left_out_and_named():
    ratio = geometric_ratio({"a": ([2.0, 2.0], [1.0, 1.0]), "b": ([INF, INF], [1.0, 1.0])})
    assert ratio.mean == pytest.approx(2.0)
    assert ratio.left_out == ("b",)
    assert math.isnan(geometric_ratio({"b": ([INF], [1.0])}).mean)


def test_intervals_of_ratios_vary_both_sides_together():
    rng = np.random.default_rng(0)
    hard = rng.uniform(1, 100, 20)  # how hard a seed is, for both alike
    ratio = geometric_ratio({"a": ((2 * hard).tolist(), hard.tolist())})
    assert (ratio.low, ratio.high) == pytest.approx((2.0, 2.0))
