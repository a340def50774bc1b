"""``chameleon bench`` in this process."""

import json

import pytest
from chameleon_bench import hooks
from chameleon_core.cli.main import run as chameleon
from chameleon_core.errors import ExitCode
from chameleon_core.plugins import Registry
from chameleon_core.plugins.registry import default_registry
from chameleon_core.testing.synthetic import synthetic_registry

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
def plugins(monkeypatch):
    default_registry.cache_clear()
    registry = synthetic_registry(hooks)
    monkeypatch.setattr(Registry, "load", classmethod(lambda _: registry))
    monkeypatch.setenv("CHAMELEON_DEBUG", "")
    yield
    default_registry.cache_clear()


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
    told = capsys.readouterr()
    assert json.loads(told.out)["results"] == first["results"]
    assert "2 of 2 cells have ended before" in told.err


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


def test_nothing_ended_is_no_valid_result(file, tmp_path, capsys):
    arguments = ["bench", str(file), "-o", str(tmp_path / "out"), "--report-only"]
    assert chameleon(arguments) == ExitCode.NO_VALID_RESULT


def test_errors_are_those_of_a_compiler(file, capsys):
    file.write_text(file.read_text() + "sedes: 3\n")
    assert chameleon(["bench", str(file)]) == ExitCode.USAGE
    assert "unknown key 'sedes'; did you mean 'seeds'?" in capsys.readouterr().err
