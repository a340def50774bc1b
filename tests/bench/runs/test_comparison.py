"""What is said of two runs, and of what cannot be compared."""

import json
import re
import shutil
import sqlite3
import sys

import attrs
import click
import numpy as np
import pytest
from chameleon_bench._commands import compare
from chameleon_bench._runs.comparison import (
    ComparedOperator,
    ComparedRun,
    comparison_of,
    computed,
    machines_differ,
    names_of,
    pairs_json,
    pipeline_differences,
    read_run,
    shared,
    sum_json,
    time_json,
    version_differences,
)
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ConfigError, ExitCode, RunFolderError
from chameleon_core._run_view import RunState, TimeSource
from chameleon_core._task import Task
from hypothesis import given
from hypothesis import strategies as st
from synthetic import run_synthetic, synthetic_document


def operator(name, repeats, *, costs=(), weight=1, source=TimeSource.COMPARISON):
    return ComparedOperator(
        name=name,
        weight=weight,
        repeats=tuple(repeats),
        source=source if repeats else "",
        costs=np.array(costs or repeats or [np.inf], float),
        seconds=1.0,
    )


def made(name, operators, **more):
    """A run of operators, each under its name."""
    values = {
        "folder": f"/runs/{name}",
        "name": name,
        "state": RunState.FINISHED,
        "operators": {row.name: row for row in operators},
        "network": None,
        "measurements": 1,
        "seconds": 1.0,
        "document": {},
        "target": "llvm",
        "environment": {"device": "a", "threads": 2},
        "versions": {},
    }
    return ComparedRun(**{**values, **more})


def test_two_runs_are_compared_operator_by_operator(few, many):
    result = comparison_of([few, many])
    assert [run["name"] for run in result["runs"]] == ["few", "many"]
    assert [row["name"] for row in result["operators"]] == ["op0", "op1", "op2"]
    for row in result["operators"]:
        for name, folder in (("few", few), ("many", many)):
            best = json.loads((folder / "best.json").read_text())
            (same,) = (o for o in best["operators"] if o["name"] == row["name"])
            assert row["times"][name]["seconds"] == same["tuned_seconds"]
            assert row["times"][name]["seconds_from"] == "comparison"
            assert row["times"][name]["measurements"] == same["measurements"]
    (pair,) = result["pairs"]
    logs = []
    for row in pair["operators"]:
        times = next(o["times"] for o in result["operators"] if o["name"] == row["name"])
        assert row["ratio"] == pytest.approx(times["few"]["seconds"] / times["many"]["seconds"])
        logs.append(np.log(row["ratio"]))
        assert row["second_measurements_to_goal"] <= 16
    assert pair["ratio"] == pytest.approx(np.exp(np.mean(logs)))
    assert pair["least_p"] == 0.25
    assert pair["network"] is None
    changed = result["pipeline"]
    assert changed == {
        "budget.measurements": {"few": "8", "many": "16"},
        "seed": {"few": "0", "many": "1"},
    }
    assert result["versions"] == result["environment"] == {}
    assert not result["machines_differ"]


def test_the_command_prints_tables_and_json(few, many, capsys):
    assert command_line(["compare", str(few), str(many), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == comparison_of([few, many])
    assert command_line(["compare", str(few), str(many)]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "few / many (above 1: many is faster)" in printed
    assert "geometric mean of 3" in printed
    assert re.search(r"^op0 +8 in \d+\.\d s +16 in \d+\.\d s$", printed, re.MULTILINE)
    assert "*" not in printed, "all times are from comparisons"
    assert "with so few operators it cannot be below 0.25" in printed
    assert "budget.measurements" in printed
    assert "versions: no difference" in printed


@pytest.mark.parametrize(
    "case",
    [
        (["FEW"], ExitCode.USAGE, "name two run folders or more"),
        (["FEW", "FEW"], ExitCode.USAGE, "the same run, which cannot be compared with itself"),
        (["FEW", "NONE"], ExitCode.USAGE, "is no run folder"),
        (["FEW", "OTHER"], ExitCode.USAGE, "no operator in common: few tunes op0, op1, op2 and"),
        (["FEW", "OTHER"], ExitCode.USAGE, "is [7, 9] in few and [3, 3] in other"),
        (["FEW", "FAILING"], ExitCode.NO_VALID_RESULT, "none of its 4 measurements is valid"),
        (["FEW", "EMPTY"], ExitCode.NO_VALID_RESULT, "nothing was measured in it yet"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(few, tmp_path, capsys, case):
    words, code, said = case
    budget = {"measurements": 4, "batch_size": 4}
    places = {name: tmp_path / name.lower() for name in ("NONE", "OTHER", "FAILING", "EMPTY")}
    places["NONE"].mkdir()
    if "OTHER" in words:
        run_synthetic(synthetic_document(places["OTHER"], operators=[[3, 3]], budget=budget))
    if "FAILING" in words:
        more = {"operators": [[7, 9]], "failing": 100, "budget": budget}
        run_synthetic(synthetic_document(places["FAILING"], **more))
    if "EMPTY" in words:
        shutil.copytree(few, places["EMPTY"])
        with sqlite3.connect(places["EMPTY"] / "records.sqlite") as store:
            store.execute("DELETE FROM measurements")
            store.execute("DELETE FROM comparisons")
            store.execute("UPDATE facts SET value = 'null' WHERE name = 'finished'")
    assert command_line(["compare", *[str(places.get(word, few)) for word in words]]) == code
    printed = capsys.readouterr()
    assert not printed.out
    assert said in printed.err


PAIR = {"first": "old", "second": "new", "network": None, "ratio": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ({"network": 1.0}, "not slower"),
        ({"network": 1 / 1.04}, "slower"),
        ({"ratio": 1 / 1.04, "low": 1 / 1.06, "high": 1 / 1.035}, "slower"),
        ({"ratio": 1 / 1.04, "low": 1 / 1.06, "high": 1 / 1.01}, "undecided"),
        ({"ratio": 1.0, "low": 1 / 1.02, "high": 1.01}, "not slower"),
        ({"ratio": 1 / 1.2}, "slower"),
    ],
)
def test_recorded_times_are_judged_by_their_interval(times, verdict):
    answer = compare._recorded({**PAIR, **times}, 0.03)
    assert answer["verdict"] == verdict
    assert "recorded, and not taken side by side" in answer["reason"]


def test_without_recorded_times_nothing_is_judged():
    with pytest.raises(RunFolderError, match="no network and no operator that both timed"):
        compare._recorded(PAIR, 0.03)


def test_networks_are_timed_side_by_side_by_the_package_of_networks(few, many, monkeypatch):
    asked = {}

    @click.command()
    @click.argument("folder", type=click.Path())
    @click.option("--against")
    @click.option("--fail-if-slower")
    @click.option("--trust-source", is_flag=True)
    @click.option("--json", "as_json", is_flag=True)
    def gate(**options):
        asked.update(options)
        sys.exit(ExitCode.UNDECIDED)

    monkeypatch.setattr(compare, "_gate_command", lambda: gate)
    status = command_line(["compare", str(few), str(many), "--fail-if-slower", "2%"])
    assert status == ExitCode.UNDECIDED
    assert (str(asked["folder"]), asked["against"]) == (str(many), str(few))
    assert (asked["fail_if_slower"], asked["trust_source"]) == ("2%", False)
    recorded = ["compare", str(few), str(many), "--fail-if-slower", "90%", "--recorded"]
    assert command_line(recorded) in {ExitCode.OK, ExitCode.UNDECIDED}


def test_three_runs_have_no_old_and_new_one(few, many, capsys):
    runs = [str(few), str(many), str(few)]
    assert command_line(["compare", *runs, "--fail-if-slower", "3%"]) == ExitCode.USAGE
    assert "an old and a new run folder" in capsys.readouterr().err


def test_a_link_to_a_run_is_the_same_run(few, tmp_path):
    (tmp_path / "link").symlink_to(few)
    with pytest.raises(ConfigError, match="the same run"):
        comparison_of([few, tmp_path / "link"])


def test_a_folder_that_is_no_run_has_a_hint(tmp_path):
    with pytest.raises(RunFolderError) as caught:
        comparison_of([tmp_path / "a", tmp_path / "b"])
    assert caught.value.hint


def test_an_unfinished_run_is_compared_as_its_search_is(few, many, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(few, copy)
    with sqlite3.connect(copy / "records.sqlite") as store:
        store.execute("UPDATE facts SET value = 'null' WHERE name = 'finished'")
    result = comparison_of([copy, many])
    assert {row["times"]["copy"]["seconds_from"] for row in result["operators"]} == {"search"}
    assert result["runs"][0]["state"] == "interrupted"
    assert result["pairs"][0]["mixed_sources"] == ["op0", "op1", "op2"]


def test_times_have_intervals_of_their_repeats():
    first = time_json(operator("a", [1.0, 1.1, 0.9, 1.0, 1.05]))
    assert first["low"] <= first["seconds"] <= first["high"]
    assert (first["repeats"], first["low"] >= 0.9, first["high"] <= 1.1) == (5, True, True)
    alone = time_json(operator("a", [2.0]))
    assert (alone["seconds"], alone["low"], alone["high"]) == (2.0, None, None)
    none = time_json(operator("a", []))
    assert (none["seconds"], none["seconds_from"], none["repeats"]) == (None, None, 0)


def test_a_difference_that_all_operators_show_is_significant():
    names = [f"op{number}" for number in range(8)]
    sizes = np.geomspace(1e-6, 1.0, 8)
    fast = made("fast", [operator(n, [s, s * 1.01]) for n, s in zip(names, sizes, strict=True)])
    slow = made("slow", [operator(n, [s * 2, s * 2.02]) for n, s in zip(names, sizes, strict=True)])
    (pair,) = pairs_json([slow, fast])
    assert pair["p"] == pytest.approx(2**-7)
    assert pair["p_holm"] == pair["p"] == pair["least_p"]
    assert pair["ratio"] == pytest.approx(2.0)
    assert 1.9 < pair["low"] <= 2.0 <= pair["high"] < 2.1


def test_three_runs_are_adjusted_for_three_tests():
    names = [f"op{number}" for number in range(6)]
    runs = [made(str(k), [operator(n, [k * 1.0, k * 1.0]) for n in names]) for k in (1, 2, 3)]
    rows = pairs_json(runs)
    assert [(row["first"], row["second"]) for row in rows] == [("1", "2"), ("1", "3"), ("2", "3")]
    assert all(row["p_holm"] == pytest.approx(min(1.0, 3 * row["p"])) for row in rows)


def test_an_operator_without_a_time_counts_as_slower_and_has_no_ratio():
    first = made("a", [operator("x", [1.0]), operator("y", [])])
    (pair,) = pairs_json([first, made("b", [operator("x", [1.0]), operator("y", [1.0])])])
    assert pair["left_out"] == ["y"]
    assert pair["tasks"] == 1
    assert sum_json(first, {"x": 1, "y": 1})["seconds"] is None
    assert pair["operators"][1]["goal_seconds"] is None
    assert pair["operators"][1]["first_measurements_to_goal"] is None


def test_sums_count_operators_as_often_as_they_occur():
    run = made("a", [operator("x", [1.0, 1.0]), operator("y", [2.0, 2.0])])
    assert sum_json(run, {"x": 3, "y": 1}) == {"seconds": 5.0, "low": 5.0, "high": 5.0}


def test_measurements_are_counted_until_the_slower_search_was_reached():
    first = made("a", [operator("x", [1.0], costs=[4.0, np.inf, 2.0, 1.0])])
    second = made("b", [operator("x", [2.0], costs=[8.0, 2.0])])
    ((item,),) = (row["operators"] for row in pairs_json([first, second]))
    assert item["goal_seconds"] == 2.0
    assert (item["first_measurements_to_goal"], item["second_measurements_to_goal"]) == (3, 2)


def test_operators_are_the_same_whatever_the_target_and_the_name():
    task = Task(name="a", operator="dense", arguments={"units": 4}, target="x", flop=1.0)
    assert computed(task) == computed(attrs.evolve(task, name="b", target="y"))
    assert computed(task) != computed(attrs.evolve(task, arguments={"units": 5}))


@pytest.mark.parametrize(
    ("more", "differ"),
    [
        ({}, False),
        ({"environment": {"device": "a", "threads": 2, "workers": 9}}, False),
        ({"environment": {"device": "b", "threads": 2}}, True),
        ({"environment": {"device": "a", "threads": 1}}, True),
        ({"target": "llvm -mcpu=znver3"}, True),
        ({"environment": {"devices": [{"name": "x"}]}}, True),
    ],
)
def test_times_of_two_machines_are_told_apart(more, differ):
    assert machines_differ([made("a", []), made("b", [], **more)]) is differ


def test_the_same_devices_in_another_order_and_mood_are_the_same():
    places = [{"name": "x", "state": "free"}, {"name": "y", "state": "lost", "pace": 2.0}]
    other = [{"name": "y", "state": "free"}, {"name": "x", "state": "busy"}]
    runs = [made(str(n), [], environment={"devices": d}) for n, d in enumerate((places, other))]
    assert not machines_differ(runs)


def test_operators_of_pipelines_differ_key_by_key():
    documents = [
        {"model": {"operators": [{"dense": {"units": units}}]}, "output": str(units), "list": [1]}
        for units in (3, 4)
    ]
    runs = [made(str(n), [], document=row) for n, row in enumerate(documents)]
    assert pipeline_differences(runs) == {"model.operators.0.dense.units": ["3", "4"]}
    runs[1].document["list"] = [1, 2]
    assert pipeline_differences(runs)["list"] == ["[1]", "[1, 2]"]


def test_two_machines_are_warned_of(few, many, tmp_path, capsys):
    copy = tmp_path / "elsewhere"
    shutil.copytree(many, copy)
    with sqlite3.connect(copy / "records.sqlite") as store:
        described = json.dumps({"device": "another", "versions": {"numpy": "1"}})
        store.execute("UPDATE facts SET value = ? WHERE name = 'runner'", (described,))
        store.execute("UPDATE facts SET value = ? WHERE name = 'versions'", ('{"numpy": "1"}',))
    assert command_line(["compare", str(few), str(copy)]) == ExitCode.OK
    outcome = capsys.readouterr()
    assert "their times are not comparable" in outcome.err
    assert '"another"' in outcome.out
    assert read_run(copy, "x").environment == {"device": "another"}


def test_a_version_that_one_run_did_not_need_is_no_difference():
    runs = [
        made("a", [], versions={"numpy": "1", "torch": "2"}),
        made("b", [], versions={"numpy": "2"}),
    ]
    assert version_differences(runs) == {"numpy": ["1", "2"]}


@given(
    st.lists(
        st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join),
        min_size=2,
        max_size=4,
        unique=True,
    )
)
def test_names_tell_folders_apart(folders):
    names = names_of(folders)
    assert len(set(names)) == len(folders)
    assert all(
        f"/{folder}".endswith(f"/{name}") or name.endswith(folder)
        for folder, name in zip(folders, names, strict=True)
    )


def test_what_runs_share_comes_in_the_order_of_the_first():
    first = made("a", [operator(name, [1.0]) for name in "xyz"])
    assert shared([first, made("b", [operator(name, [1.0]) for name in "zwx"])]) == ["x", "z"]
