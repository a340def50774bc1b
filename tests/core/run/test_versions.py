"""A run records the versions of everything that took part, whoever wrote it."""

from __future__ import annotations

import json
from importlib import metadata

import attrs
import pytest
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins import NoOptions, PluginRecord
from chameleon_core.run_folder import read_store
from chameleon_core.store import RecordStore
from chameleon_core.versions import stages_of, versions
from structlog.testing import capture_logs
from synthetic import SyntheticExplorer

CORE = "chameleon-tuner-core"


@pytest.fixture
def run(pipeline, plugin):
    """Runs with an explorer that a distribution of somebody else brings."""

    def made(measurements=8, distribution="pytest"):
        plugins = [(distribution, plugin("explorers", SyntheticExplorer))]
        budget = {"measurements": measurements, "batch_size": 4}
        resolved = pipeline(plugins=plugins, explorer="odd", budget=budget, baselines=[])
        return run_pipeline(resolved)

    return made


def test_third_parties_are_recorded_and_what_they_import(run):
    result = run()
    # pytest stands for a third party's distribution, being installed wherever this runs.
    for name in (CORE, "numpy", "attrs", "pytest"):
        assert result.versions[name] == metadata.version(name)
    assert json.loads((result.folder / "best.json").read_text())["versions"] == result.versions
    events = (result.folder / "events.jsonl").read_text().splitlines()
    [started] = [json.loads(e) for e in events if '"RunStarted"' in e]
    assert started["versions"]["pytest"] == metadata.version("pytest")
    with read_store(result.folder) as store:
        assert store.fact("versions") == result.versions


def test_what_is_in_the_process_alone_has_no_version(run):
    assert run(distribution="nowhere-installed").versions["nowhere-installed"] is None


def test_other_versions_than_before_are_said(run):
    folder = run().folder
    with RecordStore(folder / "records.sqlite") as store:
        store.set_fact("versions", {**store.fact("versions"), "numpy": "0.1", "gone": "1.0"})
    with capture_logs() as logs:
        result = run(12)
    [told] = [log for log in logs if "other versions" in log["event"]]
    assert told["versions"] == {"numpy": f"0.1 -> {metadata.version('numpy')}"}
    assert result.versions["gone"] == "1.0", "it took part before"


@attrs.frozen
class Nested:
    stages: tuple[StageSpec, ...]


def test_stages_inside_stages_take_part():
    record = PluginRecord(name="a", summary="", factory="a:b", options=NoOptions)

    def spec(distribution, options=None):
        return StageSpec(
            kind="explorers",
            name="a",
            record=record,
            options=options,
            distribution=distribution,
        )

    inner = spec("inner", Nested(stages=(spec("innermost"),)))
    found = stages_of(spec("outer", Nested(stages=(inner,))))
    assert [one.distribution for one in found] == ["outer", "inner", "innermost"]
    assert versions(["surely-not-installed"]) == {"surely-not-installed": None}
