"""``chameleon bench`` in this process."""

import json
import os

import pytest
from chameleon_bench import hooks
from chameleon_bench._suites import load
from chameleon_cli._main import run as chameleon
from chameleon_core._errors import ExitCode
from synthetic import SyntheticExplorer, synthetic_registry

SUITE = """\
pipelines:
  small: {budget: {batch_size: 4}}
tasks:
  - model: {synthetic: {operators: [[9, 11, 7]]}}
seeds: 2
budget: {measurements: 12}
runner: synthetic
"""


@pytest.fixture(autouse=True)
def plugins(install, monkeypatch):
    install(synthetic_registry(hooks))
    monkeypatch.setenv("CHAMELEON_DEBUG", "")


@pytest.fixture
def file(tmp_path, load):
    load(SUITE)
    return tmp_path / "suite.yaml"


def test_json_then_nothing_left_to_run(file, tmp_path, capsys):
    arguments = ["bench", str(file), "-o", str(tmp_path / "out"), "--json"]
    assert chameleon(arguments) == ExitCode.OK
    first = json.loads(capsys.readouterr().out)
    assert first["cells"] == {"all": 2, "ended": 2, "failed": 0}
    assert chameleon(arguments) == ExitCode.OK
    printed = capsys.readouterr()
    assert json.loads(printed.out)["results"] == first["results"]
    assert "2 of 2 cells have ended before" in printed.err


def test_what_a_plugin_prints_is_no_part_of_the_result(file, tmp_path, capfd, monkeypatch):
    explore = SyntheticExplorer.explore

    def loud(*given):
        print("a print while it explores")  # noqa: T201
        os.write(1, b"a library's line\n")
        return explore(*given)

    monkeypatch.setattr(SyntheticExplorer, "explore", loud)
    assert chameleon(["bench", str(file), "-o", str(tmp_path / "out"), "--json"]) == ExitCode.OK
    printed = capfd.readouterr()
    assert json.loads(printed.out)["cells"] == {"all": 2, "ended": 2, "failed": 0}
    assert "a print while it explores" in printed.err
    assert "a library's line" in printed.err


def test_a_table_for_people(file, tmp_path, capsys):
    assert chameleon(["bench", str(file), "-o", str(tmp_path / "out")]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "synthetic  small" in out
    assert str(tmp_path / "out" / "report.html") in out


def test_a_dry_run_runs_nothing(file, tmp_path, capsys):
    arguments = ["bench", str(file), "-o", str(tmp_path / "out"), "--dry-run", "--json"]
    assert chameleon(arguments) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["cells"][0]["cells"] == 2
    assert not (tmp_path / "out").exists()


def test_errors_are_those_of_a_compiler(file, capsys):
    file.write_text(file.read_text() + "sedes: 3\n")
    assert chameleon(["bench", str(file)]) == ExitCode.USAGE
    assert "unknown key 'sedes'; did you mean 'seeds'?" in capsys.readouterr().err


def test_failed_cells_are_no_success_and_their_pipeline_is_shown(file, tmp_path, capsys):
    broken = "\n  broken: {runner: {name: synthetic-replay, log: /}}\ntasks:"
    file.write_text(file.read_text().replace("\ntasks:", broken))
    arguments = ["bench", str(file), "-o", str(tmp_path / "out")]
    assert chameleon(arguments) == ExitCode.NO_VALID_RESULT
    printed = capsys.readouterr()
    [row] = [line.split() for line in printed.out.splitlines() if "synthetic  broken" in line]
    assert row == ["synthetic", "broken", *"-----", "0/2"]
    assert "2 of 4 cells failed" in printed.err
    page = (tmp_path / "out" / "report.html").read_text()
    # Each table with a row for each pipeline has one; columns without any value are left out.
    assert page.count("<tr><td>broken</td>") == 9
    assert chameleon([*arguments, "--report-only"]) == ExitCode.NO_VALID_RESULT


def test_cells_of_other_versions_run_again_and_say_so(file, tmp_path, capsys, monkeypatch):
    arguments = ["bench", str(file), "-o", str(tmp_path / "out")]
    monkeypatch.setattr(load, "version_of", lambda *_: "1.0")
    assert chameleon(arguments) == ExitCode.OK
    monkeypatch.setattr(load, "version_of", lambda *_: "1.1")
    capsys.readouterr()
    assert chameleon([*arguments, "--report-only"]) == ExitCode.NO_VALID_RESULT
    note = "chameleon-tuner-core was 1.0 and is 1.1"
    assert f"2 cells of other versions do not count: {note}" in capsys.readouterr().err
    assert chameleon(arguments) == ExitCode.OK
    err = capsys.readouterr().err
    assert f"2 cells of other versions run again: {note}" in err
    assert "2/2 cells" in err
    assert chameleon(arguments) == ExitCode.OK
    assert "2 of 2 cells have ended before" in capsys.readouterr().err
