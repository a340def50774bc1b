"""Waking: at once, in any number, and nobody else's file once it is over."""

import os
import select
from unittest.mock import Mock

import pytest
from chameleon_runners._engine import worker_process
from chameleon_runners._engine.process_pool import WakePipe
from chameleon_runners._engine.worker_process import WorkerProcess


def ready(pipe):
    return bool(select.select([pipe], [], [], 0.0)[0])


def test_waking_and_clearing():
    pipe = WakePipe()
    assert not ready(pipe)
    pipe.clear()
    for _ in range(3):
        pipe.wake()
    assert ready(pipe)
    pipe.clear()
    assert not ready(pipe)
    pipe.close()


def test_nobody_waits_for_a_full_pipe():
    pipe = WakePipe()
    for _ in range(1 << 17):
        pipe.wake()
    assert ready(pipe)
    pipe.close()


def test_a_closed_one_touches_no_file_that_got_its_number():
    pipe = WakePipe()
    pipe.close()
    pipe.close()
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, b"theirs")
    pipe.wake()
    pipe.clear()
    assert os.read(read, 100) == b"theirs"
    os.close(read)
    os.close(write)


@pytest.fixture
def write_after(tmp_path, monkeypatch):
    """Lets another thread close a pipe just before the next write, and returns files of others."""
    files = [tmp_path / str(number) for number in range(8)]
    write, opened = os.write, []

    def install(close):
        def late(descriptor, data):
            if not opened:
                close()
                opened.extend(os.open(file, os.O_CREAT | os.O_WRONLY) for file in files)
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", late)
        return files

    yield install
    for descriptor in opened:
        os.close(descriptor)


def test_a_pipe_that_is_closed_meanwhile_writes_into_no_other_file(write_after):
    pipe = WakePipe()
    files = write_after(pipe.close)
    pipe.wake()
    assert [file.read_bytes() for file in files] == [b""] * len(files)


def test_a_worker_that_is_ended_meanwhile_gets_no_command_in_another_file(write_after, monkeypatch):
    monkeypatch.setattr(worker_process, "ChildProcess", Mock())
    worker = WorkerProcess(environment={}, memory_bytes=1)
    files = write_after(worker.kill)
    worker.submit("work", {"command": "build"}, 1.0)
    assert [file.read_bytes() for file in files] == [b""] * len(files)
