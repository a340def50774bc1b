"""Tasks of a network as it is are tuned as if there were no alternatives to them."""

from __future__ import annotations

import attrs
import pytest
from chameleon_core.loop import run_pipeline
from chameleon_testing.fakes import ModelOptions, SyntheticFrontend

MEASUREMENTS = 24


class WithAlternatives(SyntheticFrontend):
    """Each task once more, with the same knobs."""

    def tasks(self, target):
        own = super().tasks(target)
        others = [
            attrs.evolve(
                task,
                name=f"{task.name} small",
                arguments={**task.arguments, "dtype": "small"},
                alternative_of=task.name,
            )
            for task in own
        ]
        return [*own, *others]


@pytest.mark.parametrize("scope", ["task", "network"])
def test_what_is_measured_of_a_networks_own_tasks_stays_the_same(
    pipeline, plugin, records, tmp_path, scope
):
    def measured(kind, folder):
        resolved = pipeline(
            plugins=[plugin("frontends", kind, ModelOptions)],
            model={"odd": {"operators": [[9, 9], [7, 7]]}},
            budget={"measurements": MEASUREMENTS, "batch_size": 4, "scope": scope},
            output=str(tmp_path / folder),
        )
        return records(run_pipeline(resolved).folder)

    alone, beside = measured(SyntheticFrontend, "alone"), measured(WithAlternatives, "beside")
    assert {name: set(found) for name, found in alone.items()} == {
        name: set(found) for name, found in beside.items() if name in alone
    }
    others = [len(found) for name, found in beside.items() if name not in alone]
    most = 0.6 * MEASUREMENTS * (2 if scope == "task" else 1)
    assert 0 < sum(others) <= most
