"""What an earlier version wrote is read, or an error names the command that renews it."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from chameleon_core._errors import ExitCode
from chameleon_networks import load
from chameleon_networks._artifact.writer import FORMAT, read_manifest, write_manifest
from chameleon_system._processor import own_architecture

EARLIER = Path(__file__).parents[1] / "data" / "upgrade"


@pytest.fixture
def earlier(tmp_path):
    """A run folder, and beside it a record database and the model, all of an earlier version."""
    for source in EARLIER.rglob("*"):
        target = tmp_path / source.relative_to(EARLIER)
        if source.is_dir():
            target.mkdir()
            continue
        text = source.read_text(encoding="utf-8").replace("{folder}", str(tmp_path))
        if source.suffix != ".sql":
            target.write_text(text, encoding="utf-8")
            continue
        with sqlite3.connect(target.with_suffix(".sqlite")) as connection:
            connection.executescript(text)
    network = tmp_path / "run" / "network"
    manifest = json.loads((network / "manifest.json").read_text())
    del manifest["files"], manifest["digest"]  # the files are not here
    write_manifest(network, manifest)
    return tmp_path


@pytest.mark.parametrize("command", ["status", "best", "report", "runs"])
def test_commands_read_the_run_folder(earlier, command, command_line):
    run = earlier / ("" if command == "runs" else "run")
    done = command_line(command, run, *(["--json"] if command != "report" else []))
    assert done.returncode == ExitCode.OK, done.stderr
    if command == "best":
        network = json.loads(done.stdout)["network"]
        assert network["operators_measured"] == 2
        assert network["seconds"] == pytest.approx(4.66e-8, rel=0.05)


def test_a_run_that_measured_other_spaces_starts_again_only_if_it_is_told(earlier, command_line):
    done = command_line("run", earlier / "run" / "pipeline.yaml")
    assert done.returncode == ExitCode.USAGE
    assert "belongs to another pipeline" in done.stderr
    assert "runner.clock was not set and is true" in done.stderr
    assert "start anew here (--fresh)" in done.stderr


@pytest.mark.parametrize("form", ["c", "wheel", "onnxruntime"])
def test_a_network_that_is_exported_must_be_delivered_again(earlier, form, command_line):
    assert read_manifest(earlier / "run" / "network")["format"] < FORMAT
    words = ("export", earlier / "run", "--to", form, "-o", earlier / "out", "--trust-source")
    done = command_line(*words)
    assert done.returncode == ExitCode.USAGE
    assert "another version of Chameleon delivered" in done.stderr
    assert f"Run `chameleon compile {earlier / 'run'}`" in done.stderr
    assert not (earlier / "out").exists() or not any((earlier / "out").iterdir())


def test_a_record_database_is_read_and_extended(earlier, command_line):
    listed = command_line("records", "list", earlier / "database.sqlite", "--json")
    assert listed.returncode == ExitCode.OK, listed.stderr
    tasks = json.loads(listed.stdout)["tasks"]
    assert [task["records"] for task in tasks] == [2, 2, 2]
    added = command_line("records", "merge", earlier / "database.sqlite", earlier / "run", "--json")
    assert added.returncode == ExitCode.OK, added.stderr


@pytest.mark.full
@pytest.mark.skipif(own_architecture() != "x86_64", reason="the kernels are of x86 CPUs")
def test_the_network_is_delivered_again_without_tuning(earlier, command_line):
    shutil.rmtree(earlier / "run" / "network")
    done = command_line("compile", earlier / "run", "--trust-source")
    assert done.returncode == ExitCode.OK, done.stderr
    network = load(earlier / "run" / "network")
    assert np.asarray(network(np.ones((1, 3, 4, 4), np.float32))).shape == (1, 2)
    assert command_line("verify", earlier / "run", "--trust-source").returncode == ExitCode.OK
