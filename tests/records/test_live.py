"""Kernels of this machine: what one run has measured, the next one checks and takes."""

import chameleon_records.hooks
import pytest
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_core._plugins.registry import Registry
from chameleon_core._versions import installed
from chameleon_records._locations import open_database


def registry():
    if "files" in Registry.default().names("record_databases"):
        return Registry.default()
    ours = ("chameleon-tuner-records", chameleon_records.hooks)
    return Registry.from_plugins([ours], with_installed=True)


@pytest.mark.full
def test_a_kernel_is_measured_once_and_checked_again(tmp_path):
    place = tmp_path / "records.sqlite"
    known = registry()
    document = {
        "model": {"operators": [{"dense": {"name": "op", "input": [16, 32], "units": 16}}]},
        "target": "native",
        "runner": {"name": "local", "threads": 1, "workers": 1},
        "baselines": [],
        "budget": {"measurements": 3, "batch_size": 3},
        "records": str(place),
    }
    results = []
    for seed in (1, 2):
        given = {**document, "seed": seed, "output": str(tmp_path / str(seed))}
        (operator,) = run_pipeline(from_dict(given, registry=known)).operators
        results.append(operator)
    one, other = results
    assert other.origins == {"record": 3}
    assert other.tuned_seconds
    assert not other.recorded, "it was built, checked and timed in the comparison"
    assert other.tuned_seconds != other.search_seconds
    (key,) = open_database(str(place)).keys()
    assert key.conditions == {
        "threads": 1,
        "cold_bytes": 0,
        "versions": installed(("apache-tvm", "chameleon-tuner-tvm")),
    }
    assert one.spending.total > 0.0
