"""A process is named so that no other is taken for it, and what it left behind is found."""

import os
import subprocess
import sys
from pathlib import Path

import attrs
import psutil
import pytest
from chameleon_system._processes import killing, stamps
from chameleon_system._processes.killing import kill_abandoned
from chameleon_system._processes.stamps import (
    TOKEN,
    ProcessStamp,
    child_token,
    is_abandoned,
    make_scratch_folder,
    temporary_folder,
)


@pytest.fixture
def own():
    return ProcessStamp.of(os.getpid())


@pytest.fixture
def ended():
    """The stamp of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        stamp = ProcessStamp.of(process.pid)
        assert not stamp.dead
    return stamp


def test_a_stamp_is_read_back(own):
    assert ProcessStamp.parse(str(own)) == own
    assert ProcessStamp.of(os.getpid()) == own


@pytest.mark.parametrize("text", ["", "not a stamp", "12-34", "a-b-c-d", "1-2-3-4-5"])
def test_what_is_no_stamp(text):
    # Such as those of an older version, of which nothing more is known.
    assert ProcessStamp.parse(text) is None
    assert not is_abandoned(f"{text}:0")


def test_a_process_that_has_ended_is_dead(own, ended):
    assert ended.dead
    assert not own.dead
    # Its id was given to another process in the meantime.
    assert attrs.evolve(own, started=own.started - 1).dead


def test_one_that_nobody_has_waited_for_is_dead():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stamp = ProcessStamp.of(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert stamp.dead
    process.communicate()


@pytest.mark.parametrize("other", [{"namespace": "1"}, {"boot": "another"}])
def test_nothing_is_known_of_other_containers_and_machines(ended, other):
    assert is_abandoned(f"{ended}:3")
    assert not is_abandoned(f"{attrs.evolve(ended, **other)}:3")


def test_tokens_are_all_different(own):
    first, second = child_token(), child_token()
    assert first != second
    assert first.partition(":")[0] == second.partition(":")[0] == str(own)


def test_only_abandoned_processes_of_this_namespace_are_killed(monkeypatch, ended, own):
    tokens = [f"{ended}:1", f"{attrs.evolve(ended, namespace='1')}:1", f"{own}:1", ""]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, TOKEN: token},
        )
        for token in tokens
    ]
    for process in processes:
        process.stdout.readline()
    # Other tests' leftovers are none of this test's business.
    listed = [psutil.Process(process.pid) for process in processes]
    monkeypatch.setattr(killing.psutil, "process_iter", lambda: iter(listed))
    kill_abandoned()
    assert processes[0].wait(240) == -9
    assert [process.poll() for process in processes[1:]] == [None] * 3
    for process in processes:
        process.kill()
        process.communicate()


def test_the_first_folder_of_a_process_removes_those_of_the_dead(tmp_path, monkeypatch, ended):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = make_scratch_folder()
    dead = tmp_path / f"chameleon-{ended}-x_1"
    elsewhere = tmp_path / f"chameleon-{attrs.evolve(ended, namespace='1')}-x_1"
    foreign = tmp_path / "chameleon-²-1-a-b-c"
    for folder in (dead, elsewhere, foreign):
        folder.mkdir()
    stamps._remove_abandoned_once.cache_clear()
    temporary = temporary_folder()
    kept = Path(temporary.name)
    assert set(tmp_path.iterdir()) == {own, kept, elsewhere, foreign}
    assert kept.name.startswith(own.name.rpartition("-")[0])
