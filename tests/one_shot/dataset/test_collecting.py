"""Collections: every step is taken once, whatever happens in between."""

import contextlib
import json
import shutil
from pathlib import Path

import attrs
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core.plugin_api import Frontend
from chameleon_one_shot import hooks
from chameleon_one_shot._dataset.collector import Collector, NetworkTasks
from chameleon_one_shot._dataset.format import PARTS, create, read_dataset, write_part
from chameleon_one_shot._dataset.plan import read_plan
from chameleon_one_shot._dataset.sampling import HeldOut
from chameleon_one_shot._dataset.tasks import DatasetError, canonical, read_tasks, write_tasks
from stopping import StopAfter
from synthetic import plugin_of, record_of, synthetic_registry, synthetic_task

from ..conftest import GridOperator  # noqa: TID252 - tests are no package


@pytest.fixture
def collect(plan_file, plugins):
    """Collects what a plan says; a second call continues."""

    def run(*overrides, stop=None, said=None, trust_source=False, **more):
        listener = stop or object()
        return Collector(
            plan=read_plan(plan_file(**more), overrides, registry=plugins),
            registry=plugins,
            interruption=stop.interruption if stop else Interruption(),
            say=(said if said is not None else []).append,
            display=lambda: contextlib.nullcontext(listener),
            trust_source=trust_source,
        ).collect()

    return run


def contents(folder):
    """All candidates of a data set with their times, whatever their order."""
    return {
        (task.task.key, canonical(choice)): seconds
        for task in read_dataset(folder).tasks
        for choice, seconds in zip(task.choices, task.seconds.tolist(), strict=True)
    }


def test_a_collection_is_a_data_set(collect, tmp_path, log_lines):
    result = collect()
    data = read_dataset(tmp_path / "data")
    assert (result.tasks, result.candidates, result.failed_runs) == (6, 60, ())
    assert (len(data.tasks), data.candidates, data.duplicates) == (6, 60, 0)
    assert len(log_lines()) == len(set(log_lines())) == 60
    assert data.plan["tasks"] == 6
    assert len(list((tmp_path / "data" / PARTS).iterdir())) == 3
    for task in data.tasks:
        assert (task.space, task.source, task.configs.shape) == ("synthetic", "data", (10, 2))
        assert min(task.measured_at) > 0
        assert all(origin is not None for origin in task.origins)


def test_nothing_like_what_is_held_out_is_collected(collect, tmp_path):
    sizes = [[2 * n + 4, 3 * n + 4] for n in range(0, 12, 2)]
    collect(hold_out=[{"synthetic": {"operators": sizes}}])
    tasks = [task.task for task in read_dataset(tmp_path / "data").tasks]
    files = (tmp_path / "data" / "collection" / "networks").iterdir()
    networks = [read_tasks(file) for file in files]
    [held_out] = [network for network in networks if len(network) == len(sizes)]
    assert not any(HeldOut(held_out).covers(task.operator, task.arguments) for task in tasks)


def test_only_the_operators_that_a_plan_names_are_collected(collect, tmp_path):
    with pytest.raises(DatasetError, match="has operator 'synthetik'; did you mean"):
        collect(operators=["synthetik"])
    assert collect(operators=["synthetic"]).tasks == 6
    assert read_dataset(tmp_path / "data").plan["operators"] == ["synthetic"]


def test_a_finished_collection_is_only_read(collect, tmp_path, log_lines):
    collect()
    before, parts = log_lines(), tmp_path / "data" / PARTS
    times = {file.name: file.stat().st_mtime_ns for file in parts.iterdir()}
    said = []
    assert collect(said=said).candidates == 60
    assert log_lines() == before
    assert {file.name: file.stat().st_mtime_ns for file in parts.iterdir()} == times
    assert not any("network" in line for line in said)


@pytest.mark.parametrize("count", [1, 13, 20, 33])
def test_an_interrupted_collection_continues(collect, tmp_path, log_lines, count):
    with pytest.raises(RunInterrupted):
        collect(stop=StopAfter(count))
    some = contents(tmp_path / "data")
    assert count <= len(some) < 60
    collect()
    assert contents(tmp_path / "data").items() >= some.items()
    assert len(log_lines()) == len(set(log_lines())) == 60


def test_a_part_that_was_lost_is_made_of_the_run_again(collect, tmp_path, log_lines):
    collect()
    whole = contents(tmp_path / "data")
    (tmp_path / "data" / PARTS / "run-0001.parquet").unlink()
    collect()
    assert contents(tmp_path / "data") == whole
    assert len(log_lines()) == 60


def test_more_tasks_and_measurements_are_added(collect, tmp_path, log_lines):
    collect("tasks=3")
    some = contents(tmp_path / "data")
    result = collect("tasks=5", "measurements=12")
    assert (result.tasks, result.candidates) == (5, 60)
    assert contents(tmp_path / "data").items() >= some.items()
    assert len(log_lines()) == len(set(log_lines())) == 60


def test_another_plan_does_not_continue_it(collect, tmp_path):
    collect("tasks=2")
    with pytest.raises(DatasetError, match="not of this plan: seed changed") as caught:
        collect("seed=1")
    assert "`output=`" in caught.value.hint


def test_a_data_set_that_was_imported_is_not_continued(collect, tmp_path, dataset_task):
    create(tmp_path / "data")
    write_part(tmp_path / "data", [dataset_task(1.0)], name="a")
    with pytest.raises(DatasetError, match="was not collected"):
        collect()


@attrs.frozen(kw_only=True)
class ScriptOptions:
    """Options of the frontend of a script."""

    source: str = attrs.field(metadata={"source": True})


class Script(Frontend):
    """Tasks of a script, whose sizes are in another file."""

    def __init__(self, options):
        self._sizes = Path(options.source.rpartition(":")[0]).with_name("sizes.json")

    def tasks(self, target):
        sizes = json.loads(self._sizes.read_text())
        return [synthetic_task(size, f"op{n}", target=target) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("model", [{"tasks": "sizes.json"}, {"script": "net.py:build"}])
def test_a_network_that_has_changed_is_read_again(model, plan_file, install, tmp_path):
    plugins = install(
        synthetic_registry(
            hooks, GridOperator(), plugin_of(frontends=[record_of(Script, ScriptOptions)])
        )
    )
    (tmp_path / "net.py").touch()
    for sizes in ([[4, 5]], [[6, 8], [9, 9]]):
        tasks = [synthetic_task(size, f"op{n}", target="nowhere") for n, size in enumerate(sizes)]
        written = [task.to_json() for task in tasks] if "tasks" in model else sizes
        (tmp_path / "sizes.json").write_text(json.dumps(written))
        plan = read_plan(plan_file(hold_out=[model]), registry=plugins)
        reader = NetworkTasks(
            folder=tmp_path / "networks", target="nowhere", interruption=Interruption(), say=str
        )
        for _ in range(2):
            [tasks] = reader.of(plan.hold_out)
            assert [task.arguments["cardinalities"] for task in tasks] == sizes


def test_networks_that_cannot_be_read_are_all_named(collect):
    networks = [
        {"tasks": "none.json"},
        {"synthetic": {"operators": [[3, 4]]}},
        {"tasks": "neither.json"},
    ]
    with pytest.raises(ConfigError, match=r"(?s)none\.json.*neither\.json") as caught:
        collect(networks=networks)
    assert "are kept" in caught.value.hint


def test_tasks_that_carry_code_are_run_if_the_user_trusts_them(collect, tmp_path, log_lines):
    collect("tasks=2", "tasks_per_run=2")
    file = tmp_path / "data" / "collection" / "tasks.json"
    write_tasks(file, [attrs.evolve(task, operator="code") for task in read_tasks(file)])
    shutil.rmtree(tmp_path / "data" / "collection" / "runs")
    (tmp_path / "log").unlink()
    assert "carries code" in collect("tasks=2", "tasks_per_run=2").failed_runs[0]
    assert not log_lines()
    assert collect("tasks=2", "tasks_per_run=2", trust_source=True).failed_runs == ()
    assert log_lines()
