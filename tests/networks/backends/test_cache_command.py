"""``chameleon cache`` shows what kept networks, kernels and facts take, and removes old ones."""

import json
import os
import time

import pytest
from chameleon_networks._commands.cache import command
from click.testing import CliRunner


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A delivered network that is two days old, and a refused one of today."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "chameleon" / "torch"
    delivered = folder / "aa" / "predicted" / "run" / "network" / "manifest.json"
    refused = folder / "bb" / "predicted" / "refused.txt"
    for file in (delivered, refused):
        file.parent.mkdir(parents=True)
        file.write_text("x" * 1000)
    then = time.time() - 2 * 86_400
    os.utime(delivered, (then, then))
    return folder


def test_it_lists_networks(cache):
    lines = CliRunner().invoke(command).output.splitlines()
    assert [line.split()[0] for line in lines] == ["aa/predicted", "bb/predicted", "2"]
    assert lines[0].endswith("2.0 days ago  delivered")
    assert lines[1].endswith("not possible")


def test_it_removes_what_was_not_used_lately(cache):
    lists = json.loads(CliRunner().invoke(command, ["--older-than", "24h", "--json"]).output)
    assert [network["name"] for network in lists["removed"]] == ["aa/predicted"]
    assert [network["name"] for network in lists["networks"]] == ["bb/predicted"]
    assert [path.parent.name for path in cache.glob("*/*")] == ["bb"]


def test_networks_that_runs_have_read_are_listed_and_removed_as_well(cache):
    read = cache.with_name("networks") / "cc"
    read.mkdir(parents=True)
    (read / "graph.json").write_text("{}")
    lines = CliRunner().invoke(command).output.splitlines()
    assert lines[2].split()[0] == "cc"
    assert lines[2].endswith("read")
    then = time.time() - 2 * 86_400
    os.utime(read, (then, then))
    CliRunner().invoke(command, ["--older-than", "24h"])
    assert not read.exists()


@pytest.mark.parametrize(
    ("folder", "state"),
    [*(("objects", "kernels"), ("modules", "compiled")), *(("targets",) * 2, ("runtime",) * 2)],
)
def test_entries_of_other_folders_are_listed_and_removed_as_well(folder, state, cache):
    kept = cache.with_name(folder) / "dd"
    kept.parent.mkdir()
    kept.write_bytes(bytes(1 << 20))
    lines = CliRunner().invoke(command).output.splitlines()
    assert lines[2].split()[:2] == ["dd", "1.0"]
    assert lines[2].endswith(state)
    CliRunner().invoke(command, ["--older-than", "0s"])
    assert not kept.exists()


def test_an_empty_cache_and_a_wrong_duration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CliRunner().invoke(command).output.startswith("0 items in ")
    refused = CliRunner().invoke(command, ["--older-than", "long"])
    assert refused.exit_code == 2
    assert "--older-than" in refused.output
