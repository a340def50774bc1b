"""The list of runs below a folder, broken ones among them."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3

import pytest
from chameleon_bench.commands.runs import BROKEN, listed_runs, model_in_words
from chameleon_cli.main import run as command_line
from chameleon_core.errors import ExitCode
from chameleon_core.run_folder import RunFolder


def test_runs_are_listed_with_what_they_found(few, many, tmp_path, capsys):
    place = tmp_path / "runs"
    shutil.copytree(few, place / "deep" / "few")
    shutil.copytree(many, place / "many")
    shutil.copytree(many, place / "deep" / "few" / "network")
    shutil.copytree(many, place / "deep" / "few" / "earlier-1")
    shutil.copytree(many, place / "network" / "of-mine")
    (place / "empty").mkdir()
    found = {one.name: one for one in listed_runs(place)}
    assert set(found) == {"deep/few", "deep/few/earlier-1", "many", "network/of-mine"}
    one = found["many"]
    best = json.loads((many / "best.json").read_text())
    total = sum(operator["tuned_seconds"] for operator in best["operators"])
    assert (one.state, one.operators, one.measurements) == ("finished", 3, 48)
    assert (one.seconds, one.seconds_of) == (pytest.approx(total), "sum")
    assert (one.model, one.target) == ("synthetic (3)", "nowhere")
    assert command_line(["runs", str(place), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [row["name"] for row in told] == [one.name for one in listed_runs(place)]
    assert command_line(["runs", str(place)]) == ExitCode.OK
    assert "deep/few" in capsys.readouterr().out


def test_a_folder_that_is_a_run_itself_has_its_name(few):
    (one,) = listed_runs(few)
    assert one.name == "few"


def test_a_run_that_is_going_on_is_running(few, tmp_path):
    shutil.copytree(few, tmp_path / "few")
    with RunFolder(tmp_path / "few"):
        assert [one.state for one in listed_runs(tmp_path)] == ["running"]
    assert [one.state for one in listed_runs(tmp_path)] == ["finished"]


def test_broken_folders_are_listed_with_the_reason(few, tmp_path, capsys):
    for name in ("damaged", "newer", "gone", "foreign"):
        shutil.copytree(few, tmp_path / name)
    (tmp_path / "damaged" / "records.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "gone" / "records.sqlite").unlink()
    with sqlite3.connect(tmp_path / "newer" / "records.sqlite") as store:
        store.execute("PRAGMA user_version=99")
    with sqlite3.connect(tmp_path / "foreign" / "records.sqlite") as store:
        store.execute("UPDATE facts SET value = '{\"result\": {}}' WHERE name = 'finished'")
    found = {one.name: one for one in listed_runs(tmp_path)}
    assert {one.state for one in found.values()} == {BROKEN}
    assert "not a SQLite file" in found["damaged"].because
    assert "newer version" in found["newer"].because
    assert "no records.sqlite" in found["gone"].because
    assert "cannot be understood" in found["foreign"].because
    assert command_line(["runs", str(tmp_path)]) == ExitCode.OK
    assert "gone: broken: " in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
def test_a_folder_that_nobody_may_look_into_is_listed(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    (one,) = listed_runs(tmp_path)
    assert (one.name, one.state) == ("closed", BROKEN)


def test_no_folder_and_no_runs_are_sentences(tmp_path, capsys):
    assert command_line(["runs", str(tmp_path / "no")]) == ExitCode.USAGE
    assert "there is no folder" in capsys.readouterr().err
    assert command_line(["runs", str(tmp_path)]) == ExitCode.OK
    outcome = capsys.readouterr()
    assert (outcome.out, outcome.err) == ("", f"there are no runs below {tmp_path}\n")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (None, ""),
        ({}, ""),
        ("net", "net"),
        ({"operators": [1, 2]}, "operators (2)"),
        ({"builtin": {"name": "resnet18", "batch": 1}}, "builtin resnet18"),
        ({"onnx": "net.onnx"}, "onnx net.onnx"),
        ({"table": {"size": 3}}, "table"),
        ({"onnx": {"file": "a" * 50}}, f"onnx …{'a' * 40}"),
    ],
)
def test_a_model_in_few_words(section, words):
    assert model_in_words(section) == words


def test_listing_imports_neither_torch_nor_tvm(run_python, few):
    program = (
        "import sys; from chameleon_cli.main import run; "
        "code = run(['runs', sys.argv[1]]); "
        "heavy = {'torch', 'tvm', 'scipy', 'sklearn', 'jinja2'} & set(sys.modules); "
        "sys.exit(code or (str(heavy) if heavy else 0))"
    )
    run_python(program, few)
