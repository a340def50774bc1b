"""The list of runs below a folder, broken ones among them."""

import json
import os
import shutil
import sqlite3

import pytest
from chameleon_bench._commands.runs import BROKEN, listed_runs, model_in_words
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode
from chameleon_core._run_folder import RunFolder


def test_runs_are_listed_with_what_they_found(few, many, tmp_path, capsys):
    path = tmp_path / "runs"
    shutil.copytree(few, path / "deep" / "few")
    shutil.copytree(many, path / "many")
    shutil.copytree(many, path / "deep" / "few" / "network")
    shutil.copytree(many, path / "deep" / "few" / "earlier-1")
    shutil.copytree(many, path / "network" / "of-mine")
    (path / "empty").mkdir()
    result = {run.name: run for run in listed_runs(path)}
    assert set(result) == {"deep/few", "deep/few/earlier-1", "many", "network/of-mine"}
    run = result["many"]
    best = json.loads((many / "best.json").read_text())
    total = sum(operator["tuned_seconds"] for operator in best["operators"])
    assert (run.state, run.operators, run.measurements) == ("finished", 3, 48)
    assert (run.seconds, run.seconds_of) == (pytest.approx(total), "sum")
    assert (run.model, run.target) == ("synthetic (3)", "nowhere")
    assert command_line(["runs", str(path), "--json"]) == ExitCode.OK
    printed = json.loads(capsys.readouterr().out)["runs"]
    assert [row["name"] for row in printed] == [run.name for run in listed_runs(path)]
    assert command_line(["runs", str(path)]) == ExitCode.OK
    assert "deep/few" in capsys.readouterr().out


def test_a_folder_that_is_a_run_itself_has_its_name(few):
    (first,) = listed_runs(few)
    assert first.name == "few"


def test_a_run_that_is_going_on_is_running(few, tmp_path):
    shutil.copytree(few, tmp_path / "few")
    with RunFolder(tmp_path / "few"):
        assert [run.state for run in listed_runs(tmp_path)] == ["running"]
    assert [run.state for run in listed_runs(tmp_path)] == ["finished"]


def test_broken_folders_are_listed_with_the_reason(few, tmp_path, capsys):
    for name in ("damaged", "newer", "gone", "foreign"):
        shutil.copytree(few, tmp_path / name)
    (tmp_path / "damaged" / "records.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "gone" / "records.sqlite").unlink()
    with sqlite3.connect(tmp_path / "newer" / "records.sqlite") as store:
        store.execute("PRAGMA user_version=99")
    with sqlite3.connect(tmp_path / "foreign" / "records.sqlite") as store:
        store.execute("UPDATE facts SET value = '{\"result\": {}}' WHERE name = 'finished'")
    result = {run.name: run for run in listed_runs(tmp_path)}
    assert {row.state for row in result.values()} == {BROKEN}
    assert "not a SQLite file" in result["damaged"].because
    assert "newer version" in result["newer"].because
    assert "no records.sqlite" in result["gone"].because
    assert "cannot be understood" in result["foreign"].because
    assert command_line(["runs", str(tmp_path)]) == ExitCode.OK
    assert "gone: broken: " in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
def test_a_folder_that_nobody_may_look_into_is_listed(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    (first,) = listed_runs(tmp_path)
    assert (first.name, first.state) == ("closed", BROKEN)


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
        "import sys; from chameleon_cli._main import run; "
        "code = run(['runs', sys.argv[1]]); "
        "heavy = {'torch', 'tvm', 'scipy', 'sklearn', 'jinja2'} & set(sys.modules); "
        "sys.exit(code or (str(heavy) if heavy else 0))"
    )
    run_python(program, few)
