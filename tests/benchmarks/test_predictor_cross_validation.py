"""Cross-validation of predictors holds out whole groups of tasks."""

from types import SimpleNamespace

import numpy as np
from predictor_cross_validation import device_groups, folds


def test_each_group_is_in_one_fold():
    parts = folds(np.array([0, 0, 1, 2, 2, 3]), 2, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(6))
    assert not {0, 1} & {*parts[0]} or {0, 1} <= {*parts[0]}
    assert not {3, 4} & {*parts[0]} or {3, 4} <= {*parts[0]}


def test_tasks_of_one_device_are_one_group():
    tasks = [SimpleNamespace(device={"kind": kind}) for kind in ("llvm", "cuda", "llvm")]
    assert device_groups(tasks).tolist() == [1, 0, 1]
