"""``chameleon run``, ``status`` and ``best``; what gets signals is a process."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chameleon_core.api import Registry
from marks import full
from synthetic import measurements_in, synthetic_document, synthetic_registry

COMMAND = [sys.executable, str(Path(__file__).with_name("command.py"))]


@pytest.fixture
def write(tmp_path):
    """Writes a pipeline file (JSON is YAML) and returns its path."""

    def make(**more):
        runner = {"log": str(tmp_path / "log"), **more.pop("runner", {})}
        path = tmp_path / "pipeline.yaml"
        path.write_text(json.dumps(synthetic_document(tmp_path / "run", runner=runner, **more)))
        return path

    return make


@pytest.fixture
def chameleon(command_line, monkeypatch):
    """The same command in this process."""
    known = synthetic_registry(pytest.importorskip("chameleon_bench.hooks"))
    monkeypatch.setattr(Registry, "default", lambda: known)
    return command_line


def test_run_status_best(chameleon, write, tmp_path):
    file = write(failing=20)
    done = chameleon("run", file)
    assert done.returncode == 0, done.stderr
    summary, _, table = done.stdout.partition("\n\n")
    speed, against, location = summary.splitlines()
    assert re.fullmatch(r"2 operators take [\d.]+ ms together\.", speed)
    assert against.startswith("They are ")
    assert location == f"The result is in {tmp_path / 'run'}."
    header, *rows, vendor, legend, report = table.splitlines()
    assert report == f"report: {(tmp_path / 'run' / 'report.html').as_uri()}"
    assert header.split()[:5] == ["operator", "untuned", "tuned", "vendor", "ratio"]
    assert [row.split()[0] for row in rows] == ["op0", "op1", "untuned:", "GFLOP/s:"]
    assert "4.00 ms" in rows[0]
    assert vendor.startswith("vendor: synthetic, ")
    assert legend.startswith("ratio: vendor / tuned")
    assert "op0: failed " in done.stderr
    assert "finished after" in done.stderr

    result = json.loads(chameleon("run", file, "--json").stdout)
    assert set(result) == {"run", "seconds", "operators", "network", "versions"}

    status = json.loads(chameleon("status", tmp_path / "run", "--json").stdout)
    assert status["state"] == "finished"
    assert [task["measurements"] for task in status["operators"]] == [20, 20]
    assert "finished" in chameleon("status", tmp_path / "run").stdout

    best = json.loads(chameleon("best", tmp_path / "run", "--json").stdout)
    assert [o["best"] for o in best["operators"]] == [o["best"] for o in result["operators"]]
    assert "knob0" in chameleon("best", tmp_path / "run").stdout


def test_settings_output_and_fresh(chameleon, write, tmp_path):
    file = write()
    words = ("run", file, "--set", "budget.measurements=4", "-o", tmp_path / "other", "--json")
    result = json.loads(chameleon(*words).stdout)
    assert result["run"] == str(tmp_path / "other")
    assert [operator["measurements"] for operator in result["operators"]] == [4, 4]
    assert not (tmp_path / "run").exists()
    other = chameleon(*words, "--set", "seed=3")
    assert other.returncode == 2
    assert "seed was 0 and is 3" in other.stderr
    assert chameleon(*words, "--set", "seed=3", "--fresh").returncode == 0


def test_dry_run_writes_nothing(chameleon, write, tmp_path):
    file = write()
    done = chameleon("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "op1" in done.stdout
    described = json.loads(chameleon("run", file, "--dry-run", "--json").stdout)
    assert [task["size"] for task in described["tasks"]] == [63, 125]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ({"failing": 100}, 1, "no configuration gave a valid result"),
        ({"require": {"min_ratio": 9, "against": "synthetic"}}, 5, "9 times the speed"),
    ],
)
def test_exit_codes(chameleon, write, tmp_path, *, more, code, says):
    done = chameleon("run", write(**more))
    assert done.returncode == code
    assert says in done.stderr
    assert chameleon("best", tmp_path / "run").returncode == (1 if code == 1 else 0)


def test_no_run_folder(chameleon, tmp_path):
    for name in ("status", "best"):
        done = chameleon(name, tmp_path)
        assert done.returncode == 2
        assert "is no run folder" in done.stderr
        assert "hint:" in done.stderr


def started(file, log, count):
    """The command, once it has begun that many measurements."""
    process = subprocess.Popen(
        [*COMMAND, "run", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and (
        not log.exists() or len(log.read_text().splitlines()) < count
    ):
        time.sleep(0.005)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, full(signal.SIGTERM)])
def test_the_first_signal_stops_in_order(chameleon, write, tmp_path, number):
    log = tmp_path / "log"
    # A minute at least, however late this process gets to send the signal.
    file = write(runner={"delay": 0.1}, operators=[[40, 40]], budget={"measurements": 600})
    process = started(file, log, 5)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 130, stderr
    assert "stopping after what is in flight" in stderr
    assert f"continue with: chameleon run {file}" in stderr
    (stored,) = measurements_in(tmp_path / "run").values()
    # Everything begun was finished and saved.
    assert len(stored) == len(log.read_text().splitlines()) < 600
    status = json.loads(chameleon("status", tmp_path / "run", "--json").stdout)
    assert status["state"] == "interrupted"
    assert "so far" in chameleon("best", tmp_path / "run").stdout


def test_the_second_signal_stops_at_once(write, tmp_path):
    log, hold = tmp_path / "log", tmp_path / "hold"
    file = write(
        runner={"hold": str(hold), "delay": 0.1},
        operators=[[40, 40]],
        budget={"measurements": 600},
    )
    process = started(file, log, 3)
    hold.touch()  # from now on nothing in flight ever ends
    process.send_signal(signal.SIGINT)
    while "stopping after" not in (line := process.stderr.readline()):
        assert line, "the process ended without having said that it stops"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    assert process.returncode == 130
    hold.unlink()
    (stored,) = measurements_in(tmp_path / "run").values()
    assert len(stored) >= 2


def test_two_processes_on_one_folder(chameleon, write, tmp_path):
    hold = tmp_path / "hold"
    file = write(runner={"hold": str(hold), "delay": 0.001})
    hold.touch()
    first = subprocess.Popen(
        [*COMMAND, "run", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not (tmp_path / "run" / "pipeline.yaml").exists():
        assert first.poll() is None
        time.sleep(0.005)
    second = chameleon("run", file)
    assert second.returncode == 2
    assert f"another run (process {first.pid})" in second.stderr
    state = json.loads(chameleon("status", tmp_path / "run", "--json").stdout)["state"]
    assert state == "running"
    hold.unlink()
    first.communicate(timeout=240)
    assert first.returncode == 0
