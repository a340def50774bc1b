"""Figures of how a delivered network serves, from processes with three variables."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import served
import served_processes as processes

LOADER = """
def load(folder=None, *, threads=0, instances=1):
    return lambda array: array + 1
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.fixture(name="subject")
def _subject(tmp_path):
    folder = tmp_path / "network"
    folder.mkdir()
    (folder / "load.py").write_text(LOADER)
    np.savez(tmp_path / "inputs.npz", np.zeros(2, np.float32))
    return served.Subject(
        run=tmp_path,
        folder=folder,
        scratch=tmp_path,
        files={},
        rounds=2,
        seconds=0.0,
        python=sys.executable,
    )


def test_every_process_has_three_variables(subject):
    assert set(processes.environment()) <= {"PATH", "HOME", "LANG"}
    answer = processes.turn(subject.requests()["network"])
    assert set(answer["variables"]) == set(processes.environment())
    inputs = str(subject.scratch / "inputs.npz")
    with processes.answering("network", str(subject.folder), inputs) as (process, took):
        assert took > 0
        environment = Path(f"/proc/{process}/environ")
        if environment.exists():
            names = {line.partition("=")[0] for line in environment.read_text().split("\0")}
            assert names - {""} == set(processes.environment())
    assert not Path(f"/proc/{process}").exists()


def test_a_process_without_figures_says_why(subject):
    (subject.folder / "load.py").write_text("raise OSError('it is damaged')")
    with pytest.raises(processes.FailedError, match="OSError: it is damaged"):
        processes.turn(subject.requests()["network"])
    inputs = str(subject.scratch / "inputs.npz")
    answering = processes.answering("network", str(subject.folder), inputs)
    with pytest.raises(processes.FailedError, match="did not answer: OSError: it is damaged"):
        answering.__enter__()
    with pytest.raises(processes.FailedError, match="ended with 3"):
        processes.turn(subject.requests()["network"], prefix=["sh", "-c", "exit 3"])


def test_a_fresh_process_is_compared_with_what_was_said(subject, monkeypatch):
    said = {"latency": {"latency_seconds": 10.0}}
    monkeypatch.setattr(served, "read_manifest", lambda _: said)
    (subject.run / "best.json").write_text('{"network": null}')
    latency, ratio, apart = served.fresh(subject)
    assert latency.unit == "ms"
    assert latency.met is None
    assert ratio.name == "over that of manifest.json"
    assert ratio.value < 1
    assert apart.value == 1 / ratio.value, "too slow a figure in the manifest is wrong as well"
    assert apart.met is False
    assert served.attrs.evolve(apart, value=1.02).met is True
    assert served.attrs.evolve(apart, least=True).met is True


@pytest.mark.full
def test_sections_have_a_figure_for_each_contender(subject, monkeypatch):
    monkeypatch.setattr(served, "CROWD", 2)
    assert [stream.name for stream in served.two_streams(subject)] == ["network: requests"]
    if Path("/proc/self/smaps_rollup").exists():
        names = {row.name for row in served.cold(subject)}
        assert names >= {"network: first answer", "network: PSS", "network: files"}
        *_, ratio = served.crowd(subject)
        assert ratio.name == "network: 2 over one"
        assert ratio.value > 1


def test_a_group_is_removed_after_its_processes(subject):
    try:
        with processes.one_core() as prefix:
            group = Path(prefix[-1]).parent
            answer = processes.turn(subject.requests()["network"], prefix=prefix)
    except processes.FailedError as error:
        pytest.skip(str(error))
    assert answer["p50_seconds"] > 0
    assert not group.exists()


def test_who_can_make_no_group_is_told(subject, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(processes.Path, "mkdir", refused)
    with pytest.raises(processes.FailedError, match="no control group can be made: Permission"):
        served.limited(subject)


def test_c_latencies_are_read_from_the_example(subject):
    example = subject.scratch / "example"
    example.write_text(
        "#!/bin/sh\necho output0.npy\n"
        "echo 'latency 0.010000000 s (median of 5 runs, the shortest 0.009000000 s)'\n"
        "echo '99 % of the runs took 0.012000000 s or less'\n"
    )
    example.chmod(0o755)
    assert processes.c_turn(subject.scratch, [], 5) == {"p50_seconds": 0.01, "p99_seconds": 0.012}
    example.write_text("#!/bin/sh\necho it is damaged >&2\n")
    with pytest.raises(processes.FailedError, match="no latency: it is damaged"):
        processes.c_turn(subject.scratch, [], 5)


def test_a_table_says_which_bars_are_met():
    figures = [
        served.Figure("latency", 1.2345, "ms"),
        served.Figure("ratio", 1.5, "times", 1.3),
        served.Figure("requests", 1.5, "times", 1.3, least=True),
        served.Figure("left out: no control group", None),
    ]
    assert served.table(figures).splitlines()[2:] == [
        "| latency | 1.23 ms |  |  |",
        "| ratio | 1.5 times | <= 1.3 | **no** |",
        "| requests | 1.5 times | >= 1.3 | yes |",
        "| left out: no control group |  |  |  |",
    ]


def test_other_sections_are_refused(capsys):
    with pytest.raises(SystemExit):
        served.main(["runs/some", "--only", "a,z"])
    assert "--only takes a, b, c, d, e, f, g, not 'z'" in capsys.readouterr().err
