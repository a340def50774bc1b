"""Records of an operator count for that operator: no other is starved by them."""

import json
import shutil
import tempfile
from pathlib import Path

import attrs
import pytest
from chameleon_cli._main import run as chameleon
from chameleon_core._errors import ExitCode
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_records import hooks
from chameleon_records._locations import open_database
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import synthetic_document, synthetic_registry

from .synthetic import measured_lines, synthetic_run

SIZES = [[9, 9], [9, 8], [9, 7], [9, 6], [9, 5], [9, 4], [8, 8], [8, 7]]
MANY = {"measurements": 20, "batch_size": 4}


def operators_of(folder):
    found = json.loads((folder / "best.json").read_text())["operators"]
    return {tuple(one["task"]["arguments"]["cardinalities"]): one for one in found}


def unmeasured(folder):
    found = operators_of(folder)
    return {name for name, one in found.items() if one["tuned_seconds"] is None}


@pytest.fixture
def command(tmp_path, install):
    """Runs a synthetic network on the command line."""
    install(synthetic_registry(hooks))

    def call(name, **more):
        runner = {"name": "synthetic", "log": str(tmp_path / f"{name}.log")}
        document = synthetic_document(tmp_path / name, runner=runner, **more)
        (tmp_path / f"{name}.yaml").write_text(dump_yaml(document))
        return chameleon(["run", str(tmp_path / f"{name}.yaml")])

    return call


@pytest.mark.parametrize("scheduler", ["round-robin", "gradient"])
def test_a_full_database_starves_nobody(command, measured, place, capfd, scheduler):
    tmp_path = Path(place).parents[1]
    command("before", records=place, operators=SIZES[:3], budget=MANY)
    budget = {"measurements": 8, "batch_size": 4, "scope": "network"}
    more = {"operators": SIZES, "budget": budget, "scheduler": scheduler}
    assert command("run", records=place, **more) == ExitCode.OK
    assert unmeasured(tmp_path / "run") == set()
    assert "8 tasks, at most 5 more measurements, 60 measured before" in capfd.readouterr().err
    # Each has a share of one; the records of three use up theirs, and five have one measured.
    assert len(measured("run")) == 5
    assert command("empty", records="none", **more) == ExitCode.OK
    assert unmeasured(tmp_path / "empty") == set()


@pytest.mark.full
@pytest.mark.parametrize("scheduler", ["round-robin", "gradient"])
@pytest.mark.parametrize("count", [5, 8, 29, 64])
def test_a_run_of_a_network_is_not_measured_again(run, measured, place, scheduler, count):
    budget = {"measurements": count, "batch_size": 8, "scope": "network"}
    more = {"records": place, "operators": SIZES, "budget": budget, "scheduler": scheduler}
    run("one", seed=1, **more)
    run("two", seed=2, **more)
    assert measured("one")
    assert measured("two") == []


def test_records_of_one_operator_leave_the_others_their_shares(run, measured, tmp_path, place):
    run("before", records=place, operators=SIZES[:1], budget={**MANY, "measurements": 60})
    budget = {"measurements": 24, "batch_size": 4, "scope": "network"}
    run("run", records=place, operators=SIZES[:3], budget=budget)
    assert len(measured("run")) == 16
    assert not any(line.startswith("op0") for line in measured("run"))
    first, *others = [one["measurements"] for one in operators_of(tmp_path / "run").values()]
    assert first == 60
    assert min(others) >= 8 - 1  # batches of four, after a first guess


def test_records_take_nothing_from_a_wall_clock(run, measured, tmp_path, place):
    run("before", records=place, operators=SIZES[:1], budget=MANY)
    database = open_database(place)
    (key,) = database.keys()
    found = {key: [attrs.evolve(one, spent_seconds=1e4) for one in database.records(key)]}

    def again(name, **budget):
        slow = str(tmp_path / f"{name}.sqlite")
        open_database(slow).add(found)
        run(name, records=slow, operators=SIZES[:2], budget={"batch_size": 4, **budget})
        return measured(name)

    assert len(again("all", wall_time=60.0, measurements=30, scope="network")) == 15
    assert len(again("each", wall_time=60.0, measurements=30)) == 10 + 30
    # Only if nothing else is limited do the seconds of records count, and for their operator alone.
    timed = again("time", wall_time=0.2, scope="network")
    assert timed
    assert all(line.startswith("op1") for line in timed)


@pytest.mark.full
@settings(max_examples=10)
@given(
    before=st.lists(
        st.tuples(
            st.lists(st.sampled_from(SIZES), unique_by=tuple, min_size=1), st.integers(1, 30)
        ),
        max_size=3,
    ),
    count=st.integers(0, 30),
    size=st.integers(1, len(SIZES)),
    scheduler=st.sampled_from(["round-robin", "gradient"]),
    batch=st.integers(1, 8),
)
def test_no_more_operators_are_unmeasured_with_records(before, count, size, scheduler, batch):
    folder = Path(tempfile.mkdtemp())
    try:
        place = str(folder / "db.sqlite")
        for number, (operators, measurements) in enumerate(before):
            budget = {"measurements": measurements, "batch_size": 4, "scope": "network"}
            synthetic_run(
                folder / str(number), records=place, operators=operators, budget=budget, seed=number
            )
        budget = {"measurements": count, "batch_size": batch, "scope": "network"}
        more = {"operators": SIZES[:size], "budget": budget, "scheduler": scheduler}
        for name, records in (("with", place), ("without", "none")):
            synthetic_run(folder / name, records=records, **more)
        assert unmeasured(folder / "with") <= unmeasured(folder / "without")
        assert len(measured_lines(folder / "with")) <= count
    finally:
        shutil.rmtree(folder)
