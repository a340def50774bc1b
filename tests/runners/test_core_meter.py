"""How long others used the cores, read from made-up trees of /proc and scripted clocks."""

import itertools
import os
import subprocess
import sys

import pytest
from chameleon_runners import _core_meter as core_meter
from hypothesis import example, given
from hypothesis import strategies as st

SECOND = os.sysconf("SC_CLK_TCK")
STAT = """cpu  9 9 9 9 9 9 9 9 0 0
cpu0 {0} {0} {0} 77 77 {0} {0} {1} 5 5
cpu1 0 0 {0} 77 77 0 0 0 0 0
intr 1 2 3
"""


def test_busy_and_stolen_seconds_are_those_of_the_cores_asked_for(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT.format(SECOND, 3 * SECOND))
    assert core_meter.core_times([0], tmp_path) == core_meter.CoreTimes(busy=5.0, stolen=3.0)
    assert core_meter.core_times([0, 1], tmp_path) == core_meter.CoreTimes(busy=6.0, stolen=3.0)
    assert core_meter.core_times([0, 2], tmp_path) is None


@given(text=st.text(max_size=60))
@example(text="")
@example(text="cpu0 1 2 3")
@example(text="cpu0 1 2 3 4 5 6 x 8\n")
def test_what_cannot_be_read_is_not_known(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("root")
    assert core_meter.core_times([0], root) is None
    (root / "proc").mkdir()
    (root / "proc/stat").write_text(text, encoding="utf-8")
    assert core_meter.core_times([0], root) is None


def meter(reads, own):
    """A meter of two cores; each interval takes 10 s."""
    clock = itertools.count(step=10.0)
    answers, used = iter(reads), iter(own)
    return core_meter.CoreMeter(
        [0, 1], read=lambda _: next(answers), now=lambda: next(clock), own=lambda _: next(used)
    )


def times(busy, stolen=0.0):
    return core_meter.CoreTimes(busy=busy, stolen=stolen)


def test_what_we_did_not_use_others_did():
    some = meter(
        [times(100.0), times(115.0, 2.0), times(300.0, 2.0), times(301.0, 2.0)], [0, 8] * 2
    )
    with some.interval(1):
        pass
    assert (some.seconds, some.stolen, some.others) == (20.0, 2.0, 7.0)
    with some.interval(1):
        pass
    assert (some.seconds, some.stolen, some.others) == (40.0, 2.0, 0.0), "ticks even out"


@pytest.mark.parametrize(
    ("reads", "own"),
    [
        ([None, times(1.0)], [0.0, 0.0]),
        ([times(1.0), None], [0.0, 0.0]),
        ([times(1.0), times(9.0)], [0.0, None]),
        ([times(1.0), times(9.0)], [None, 0.0]),
    ],
)
def test_an_interval_that_is_not_known_does_not_count(reads, own):
    some = meter(reads, own)
    with some.interval(1):
        pass
    assert (some.seconds, some.stolen, some.others) == (0.0, 0.0, 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="clocks of other processes are Linux's")
def test_the_clock_of_another_process_is_read_until_it_has_ended():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert core_meter.own_seconds(child.pid) is not None
    child.communicate(b"\n")
    assert core_meter.own_seconds(child.pid) is None
    assert core_meter.own_seconds(None) is None


def test_switches_are_counted():
    assert core_meter.count_involuntary_switches() >= 0
