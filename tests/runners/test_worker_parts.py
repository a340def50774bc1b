"""Pieces of the worker and of the runner that need no process."""

import platform
import signal
import subprocess
import sys

import attrs
import numpy as np
import pytest
from chameleon_runners._engine.deadlines import Deadlines
from chameleon_runners._engine.workers import EndReason, WorkerEnd
from chameleon_runners._environment import worker_environment
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._worker.command_handler import compare, load_arrays, save_arrays
from chameleon_runners._worker.protocol import Decoder, ProtocolError, encode
from chameleon_runners._worker.stages import BuilderCache
from hypothesis import given
from hypothesis import strategies as st

from .conftest import TASK, fault_space

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), _JSON, max_size=4), max_size=5), st.integers(1, 50))
def test_messages_survive_any_fragmentation(messages, piece):
    data = b"".join(encode(message) for message in messages)
    decoder = Decoder()
    got = []
    for start in range(0, len(data), piece):
        got += decoder.feed(data[start : start + piece])
    assert got == messages


@given(st.data())
def test_a_changed_byte_is_noticed(data):
    raw = bytearray(encode({"seconds": [0.25, 0.5], "status": "ok"}))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    try:
        got = Decoder().feed(bytes(raw))
    except ProtocolError:
        return
    # A changed length waits for bytes that never come; the deadline deals with that.
    assert got == []


def test_bytes_that_are_no_object_are_refused():
    for body in (b"[]", b"nonsense"):
        header = encode({})[: -len(b"{}")]
        with pytest.raises(ProtocolError):
            Decoder().feed(header + body)


RIGHT = np.array([[1.0, -4.0], [0.5, 2.0]], np.float32)


def test_the_error_is_relative_to_the_largest_value():
    wrong = RIGHT.copy()
    wrong[0, 0] += 0.4
    assert compare([wrong], [RIGHT]).error == pytest.approx(0.1, rel=1e-5)


def test_the_reference_may_be_more_precise():
    assert compare([RIGHT], [RIGHT.astype(np.float64)]).error == 0.0


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([], "0 outputs"),
        ([RIGHT[0]], "shape"),
        ([RIGHT.astype(np.float64)], "float64"),
        ([RIGHT.astype(np.int32)], "int32"),
        ([np.full_like(RIGHT, np.nan)], "NaN"),
        ([np.full_like(RIGHT, np.inf)], "infinity"),
    ],
)
def test_what_cannot_be_compared_says_why(got, words):
    difference = compare(got, [RIGHT])
    assert difference.error == np.inf
    assert words in difference.problem


def test_infinities_of_the_reference_have_to_be_met():
    reference = np.array([1.0, np.inf, np.nan], np.float32)
    assert compare([reference.copy()], [reference]).error == 0.0
    other = np.array([1.0, 2.0, np.nan], np.float32)
    assert "NaN or infinite" in compare([other], [reference]).problem


def test_a_reference_of_zeros():
    zeros = np.zeros(3, np.float32)
    assert compare([zeros], [zeros]).error == 0.0
    assert compare([zeros + 1], [zeros]).error == 1.0


def test_arrays_come_back_from_the_file(tmp_path):
    arrays = [RIGHT, np.arange(5), np.array(3.0)]
    save_arrays(tmp_path / "reference.npz", arrays)
    back = load_arrays(tmp_path / "reference.npz")
    assert [a.dtype for a in back] == [a.dtype for a in arrays]
    assert all(np.array_equal(a, b) for a, b in zip(arrays, back, strict=True))
    assert [file.name for file in tmp_path.iterdir()] == ["reference.npz"]


def test_build_deadline_follows_what_builds_take():
    deadlines = Deadlines(LocalOptions(build_timeout=100.0, build_floor=5.0))
    assert deadlines.build == 100.0
    for _ in range(10):
        deadlines.built(1.0)
    assert deadlines.build == pytest.approx(20.0)
    for _ in range(100):
        deadlines.built(0.01)
    assert deadlines.build == 5.0


def test_run_deadline_follows_the_best():
    deadlines = Deadlines(LocalOptions(run_timeout=50.0, run_floor=1.0, run_factor=10.0))
    assert deadlines.run(float("inf")) == 50.0
    assert deadlines.run(1.0) == 10.0
    assert deadlines.run(1e-6) == 1.0
    deadlines.ran(3.0)
    assert deadlines.run(1e-6) == pytest.approx(12.0, rel=1e-3)
    assert deadlines.run(100.0) == 50.0


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"build_timeout": 0.0}, {"slow_factor": 1.0}, {"memory_mib": 1}]
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LocalOptions(**wrong)


def test_a_worker_without_memory_names_the_option(run_python):
    program = "import os, runpy, sys; from chameleon_runners._worker import protocol\n"
    program += "def receive(*_): raise MemoryError\n"
    program += "protocol.receive, os._exit = receive, lambda _: None\n"
    program += "sys.argv[1:] = map(str, os.pipe()); os.dup2(1, 2)\n"
    program += "runpy.run_module('chameleon_runners._worker', run_name='__main__')"
    assert run_python(program) == "memory_mib of the runner is too small for a worker"


def test_the_end_of_a_worker_above_its_limit_names_the_option():
    end = WorkerEnd(reason=EndReason.MEMORY, status=-signal.SIGKILL, log="", seconds=1.0)
    assert "memory_mib" in end.explain()


def opening(number=0, **more):
    task = attrs.evolve(TASK, arguments={"n": number})
    space = attrs.asdict(fault_space())
    return {**space, "task": task.to_json(), "threads": 1, **more}


@pytest.fixture
def builders(monkeypatch):
    """Makes an object for each message; the real one blocks modules, which only workers may."""
    monkeypatch.setattr("chameleon_runners._worker.stages.make_builder", lambda _: object())
    return BuilderCache()


def test_a_builder_is_made_once(builders):
    first = builders.get(opening())
    other = builders.get(opening(1))
    assert other is not first
    assert builders.get(opening(drop=[3])) is first
    assert builders.get(opening(1)) is other


def test_only_the_builder_in_use_is_kept_where_memory_is_short(builders, monkeypatch):
    monkeypatch.setattr("chameleon_runners._worker.stages._LARGEST_GROWTH", -1)
    first = builders.get(opening())
    second = builders.get(opening(1))
    assert builders.get(opening(1)) is second
    assert builders.get(opening()) is not first


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the limit")
def test_a_worker_uses_freed_memory_again():
    code = (
        "import resource\n"
        "for _ in range(4): arrays = [b'1' * (16 << 20) for _ in range(4)]; del arrays\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"
    )

    def faults(environment):
        process = [sys.executable, "-c", code]
        return int(subprocess.run(process, env=environment, stdout=-1, check=True).stdout)

    kept = worker_environment(threads=1, blas_threads=1, cores=[0])
    # Four times 64 MiB have 65536 pages of 4 KiB.
    assert faults(kept) < 0.5 * faults({k: v for k, v in kept.items() if "MALLOC" not in k})
