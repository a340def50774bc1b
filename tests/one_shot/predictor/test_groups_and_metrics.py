"""Similar tasks are held out together; orders are judged by tau, pairs and regret."""

from types import SimpleNamespace

import attrs
import numpy as np
import pytest
from chameleon_one_shot._dataset.tasks import Dataset, DatasetError
from chameleon_one_shot._predictor.batches import inverse_density
from chameleon_one_shot._predictor.evaluation import measured_speed
from chameleon_one_shot._predictor.groups import divide_groups, task_groups
from chameleon_one_shot._predictor.metrics import Quality, regret, tau
from chameleon_one_shot._predictor.pretraining import SplitShares, pretrain
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats


def test_sizes_within_ten_percent_are_one_group(made):
    tasks = [
        made.measured(*sizes, count=3) for sizes in ((100, 50), (109, 50), (118, 50), (200, 50))
    ]
    assert task_groups(tasks).tolist() == [0, 0, 0, 1]  # the third is like the second


def test_operators_are_told_apart_and_devices_are_not(made):
    first = made.measured(100, 50, count=3)
    other = made.measured(100, 50, count=3, operator="other")
    elsewhere = made.measured(100, 50, count=3, device={"kind": "cuda"})
    assert task_groups([first, other, elsewhere]).tolist() == [0, 1, 0]


@given(st.integers(3, 20), st.integers(0, 1000))
def test_groups_are_divided_whole(count, seed):
    labels = np.arange(2 * count) // 2
    parts = divide_groups(labels, np.ones(2 * count), [0.2, 0.2], seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(2 * count))
    sets = [set(labels[part].tolist()) for part in parts]
    assert all(sets)
    assert not sets[0] & sets[1] | sets[1] & sets[2] | sets[0] & sets[2]


@pytest.mark.parametrize(("count", "words"), [(1, "one task only"), (2, "cannot be divided")])
def test_too_few_groups_cannot_be_divided(made, options, count, words):
    tasks = tuple(made.measured(64 + number, 32) for number in range(count))
    with pytest.raises(DatasetError, match=words):
        pretrain(Dataset(tasks=tasks), options, SplitShares(), command="")


NUMBERS = st.integers(-3, 3).map(float)


@given(arrays(np.float64, 12, elements=NUMBERS), arrays(np.float64, 12, elements=NUMBERS))
def test_tau_is_kendalls(scores, quality):
    expected = stats.kendalltau(scores, quality).statistic
    assert tau(scores, quality) == pytest.approx(0.0 if np.isnan(expected) else expected, abs=1e-9)


def test_regret_is_what_the_best_of_the_first_takes_longer():
    quality = np.log([1.0, 0.5, 0.8])
    assert regret(np.array([0.0, 2.0, 1.0]), quality, 1) == pytest.approx(1.0)
    assert regret(np.array([0.0, 2.0, 1.0]), quality, 2) == pytest.approx(0.25)
    assert regret(np.zeros(3), quality, 1) == pytest.approx(1.0)  # nothing is won by chance
    assert Quality.of(np.array([3.0, 1.0, 2.0]), quality).pairwise == 1.0


def test_eight_are_measured_with_the_first_guess_among_them(made):
    example = made.example(100, 50, count=20)
    order = np.argsort(-example.quality)  # the best first
    guesses = example.configs[order[[9, 3]]]
    space = SimpleNamespace(first_guesses=np.concatenate([guesses[:1] * 0 - 1, guesses]))
    example = attrs.evolve(example, tokens=SimpleNamespace(space=space))
    wrong = np.arange(20.0)[np.argsort(order)]  # likes the slowest best
    speeds = np.exp(example.quality[order])
    assert measured_speed(-wrong, example) == pytest.approx(speeds[0])
    assert measured_speed(wrong, example) == pytest.approx(speeds[9])


def test_rare_targets_are_drawn_more_often():
    weights = inverse_density(np.concatenate([np.zeros(90), np.full(10, -3.0)]))
    assert weights[-1] > 3 * weights[0]
    assert weights.max() / weights.mean() < 50
