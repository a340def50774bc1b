"""Transfer in whole runs of synthetic tasks: between tasks, from earlier runs, reproducibly."""

import chameleon_cost_models.hooks
import chameleon_explorers.hooks
import pytest
from synthetic import measurements_in, run_synthetic, synthetic_document


def measured(folder, model, **more):
    """Run, and give what was measured of every task, batch by batch."""
    document = synthetic_document(
        folder,
        operators=((7, 9), (9, 7), (8, 8)),
        explorer="random",
        cost_model={"rounds": 10, **model},
        budget={"measurements": 12, "batch_size": 4},
        **more,
    )
    run_synthetic(document, chameleon_cost_models.hooks, chameleon_explorers.hooks)
    measured = measurements_in(folder).items()
    return {name: batches([m.config for m in measurements]) for name, measurements in measured}


def batches(configs):
    """Measurements arrive in any order within a batch of four."""
    return [set(configs[start : start + 4]) for start in range(0, len(configs), 4)]


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "ensemble"])
def test_runs_with_transfer_repeat_exactly(tmp_path, name):
    model = {"name": name, "transfer": {"tasks": True, "records": 4}}
    once, again = (measured(tmp_path / folder, model) for folder in ("once", "again"))
    assert once == again
    assert [len(result) for result in once.values()] == [3, 3, 3]


def test_the_first_batch_of_a_later_task_follows_the_others(tmp_path):
    alone = measured(tmp_path / "alone", {"name": "xgboost"})
    together = measured(
        tmp_path / "together", {"name": "xgboost", "transfer": {"tasks": True, "records": 4}}
    )
    first, second, _ = alone
    # Nothing was known before the first task's first batch, the first task before the second's.
    assert together[first][0] == alone[first][0]
    assert together[second][0] != alone[second][0]


def test_an_earlier_run_guides_the_first_batch(tmp_path):
    earlier = measured(tmp_path / "earlier", {"name": "xgboost"})
    transfer = {"history": [str(tmp_path / "earlier")], "records": 4}
    later = measured(tmp_path / "later", {"name": "xgboost", "transfer": transfer})
    first = next(iter(earlier))
    assert later[first][0] != earlier[first][0]
