"""How many threads a process may use, read from made-up trees of /proc and /sys."""

import math
import os

import pytest
from chameleon_system import _cores as cores
from chameleon_system import _thread_limit as thread_limit
from chameleon_system._thread_limit import cpu_quota, usable_threads
from hypothesis import example, given
from hypothesis import strategies as st

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate"
V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
LIMIT = "200000 100000"


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    monkeypatch.setattr(thread_limit, "allowed_cores", lambda: list(range(8)))


@pytest.fixture
def tree(tmp_path):
    """Makes a root: what /proc/self says, and files below /sys/fs/cgroup."""

    def make(cgroup, mounts, files):
        proc = tmp_path / "proc" / "self"
        proc.mkdir(parents=True)
        (proc / "cgroup").write_text(cgroup)
        (proc / "mountinfo").write_text(mounts)
        for name, text in files.items():
            path = tmp_path / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files", "threads"),
    [
        pytest.param("0::/\n", V2, {"cpu.max": LIMIT}, 2, id="container"),
        pytest.param("0::/a/b\n", V2, {"a/b/cpu.max": LIMIT, "cpu.max": "max 1"}, 2, id="own"),
        pytest.param(
            "0::/a/b\n", V2, {"a/cpu.max": LIMIT, "a/b/cpu.max": "900 100"}, 2, id="above"
        ),
        pytest.param("0::/a/gone (deleted)\n", V2, {"a/cpu.max": LIMIT}, 2, id="deleted"),
        pytest.param("0::/../x\n", V2, {"cpu.max": LIMIT, "x/cpu.max": "100 100"}, 2, id="outside"),
        pytest.param(
            "0::/docker/7\n",
            V2.replace(" / ", " /docker/7 ", 1),
            {"cpu.max": LIMIT, "docker/7/cpu.max": "100 100"},
            2,
            id="mounted from within",
        ),
        pytest.param(
            "5:cpu,cpuacct:/job:1\n0::/other\n",
            V1,
            {"cpu/job:1/cpu.cfs_quota_us": "250000", "cpu/job:1/cpu.cfs_period_us": "100000\n"},
            2,
            id="v1",
        ),
        pytest.param(
            "5:cpuset:/a\n4:cpu:/\n",
            f"{V1}\n{V2.replace('cgroup rw', 'cgroup/unified rw', 1)}",
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "cpu/a/cpu.cfs_quota_us": "100",
                "cpu/a/cpu.cfs_period_us": "100",
            },
            8,
            id="v1 without a quota",
        ),
        pytest.param(
            "4:cpu:/\n0::/\n",
            f"{V1}\n{V2.replace('cgroup rw', 'cgroup/unified rw', 1)}",
            {
                "cpu/cpu.cfs_quota_us": "500000",
                "cpu/cpu.cfs_period_us": "100000",
                "unified/cpu.max": "300000 100000",
            },
            3,
            id="both",
        ),
        pytest.param(
            "0::/\n", V2.replace("/cgroup ", "/a\\040b "), {"../a b/cpu.max": LIMIT}, 2, id="space"
        ),
        pytest.param("4:memory:/a\n", V1.replace("cpu,cpuacct", "memory"), {}, 8, id="others"),
        pytest.param("0::/\n", V2, {"cpu.max": "20000 100000"}, 1, id="less than a core"),
        pytest.param("0::/\n", V2, {"cpu.max": "3200000 100000"}, 8, id="more than there are"),
        pytest.param("", "", {"cpu.max": "100 100"}, 8, id="nothing to read"),
        pytest.param("::::\n:\n0\n", "a b\n- -\n", {}, 8, id="garbage"),
    ],
)
def test_the_smallest_limit_counts(tree, cgroup, mounts, files, threads):
    assert usable_threads(tree(cgroup, mounts, files)) == threads


def test_what_cannot_be_read_is_no_limit(tmp_path):
    assert cpu_quota(tmp_path) is None
    (tmp_path / "proc/self/mountinfo").mkdir(parents=True)
    assert usable_threads(tmp_path) == 8


@given(quota=st.integers(1, 10**14), period=st.integers(1, 10**6))
@example(quota=150_000, period=100_000)
@example(quota=200_000, period=100_000)
@example(quota=199_999, period=100_000)
def test_a_quota_is_rounded_down_but_never_to_nothing(tmp_path_factory, quota, period):
    root = _container(tmp_path_factory, f"{quota} {period}\n")
    assert cpu_quota(root) == quota / period
    assert usable_threads(root) == max(1, min(8, quota // period))


@given(text=st.text(max_size=30))
@example(text="max 100000")
@example(text="-1 100000")
@example(text="100000")
@example(text="0 100000")
@example(text="100000 0")
@example(text="1.5 1")
@example(text="1_0 1")
@example(text="9" * 5000 + " 1")
def test_other_texts_are_no_limit(tmp_path_factory, text):
    quota = cpu_quota(_container(tmp_path_factory, text))
    words = text.split()
    plain = len(words) == 2 and all(word.isascii() and word.isdecimal() for word in words)
    assert quota is None or (plain and 0.0 < quota < math.inf)


@given(cgroup=st.text(max_size=40), mounts=st.text(max_size=80))
@example(cgroup="0::/", mounts=V2.replace("cgroup rw", "\\000 rw", 1))
def test_no_text_is_an_error(tmp_path_factory, cgroup, mounts):
    root = tmp_path_factory.mktemp("root")
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text(f"{mounts}\n{V2}")
    assert usable_threads(root) == 8


def test_cores_are_no_more_than_the_quota_fills(monkeypatch):
    monkeypatch.setattr(cores, "allowed_cores", lambda: [2, 3, 5])
    monkeypatch.setattr(cores, "usable_threads", lambda: 2)
    assert cores.usable_cores() == [2, 3]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinities here")
def test_this_process_may_use_no_more_than_its_affinity(monkeypatch):
    monkeypatch.undo()
    assert 1 <= usable_threads() <= len(os.sched_getaffinity(0))


def _container(factory, text):
    """The root of a container of cgroup v2 whose ``cpu.max`` says something."""
    root = factory.mktemp("root")
    for name, content in (
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/cpu.max", text),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8", errors="replace")
    return root
