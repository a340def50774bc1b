"""``chameleon cache`` shows what kept networks, kernels and facts take, and removes old ones."""

import json
import os
import time

import pytest
from chameleon_networks._commands.cache import command
from chameleon_networks._evaluation.network_cache import NetworkCache
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
    assert [line.split()[-1] for line in lines[:2]] == ["aa/predicted", "bb/predicted"]
    assert "2.0 days ago  delivered" in lines[0]
    assert "not possible" in lines[1]
    assert lines[2].startswith("2 items in ")
    manifest = cache / "aa" / "predicted" / "run" / "network" / "manifest.json"
    manifest.write_text(json.dumps({"inputs": [{"dtype": "float32", "shape": [1, 3]}]}))
    first, *_ = CliRunner().invoke(command).output.splitlines()
    assert first.endswith("torch.compile: float32 [1, 3]  aa/predicted")


def test_it_removes_what_was_not_used_lately(cache):
    lists = json.loads(CliRunner().invoke(command, ["--older-than", "24h", "--json"]).output)
    assert [network["name"] for network in lists["removed"]] == ["aa/predicted"]
    assert [network["name"] for network in lists["networks"]] == ["bb/predicted"]
    assert [path.parent.name for path in cache.glob("*/*")] == ["bb"]


def test_networks_that_runs_have_read_are_listed_and_removed_as_well(cache):
    read = cache.with_name("networks") / "cc"
    read.mkdir(parents=True)
    cached = NetworkCache(read, "encoder.onnx ids [1, 77]")
    cached.keep_fact("graph", {})
    assert cached.fact("graph")[0] == {}
    lines = CliRunner().invoke(command).output.splitlines()
    assert lines[2].split() == [
        *["0.0", "MiB", "0.0", "days", "ago", "read", "encoder.onnx", "ids"],
        "[1,",
        "77]",
    ]
    then = time.time() - 2 * 86_400
    os.utime(read, (then, then))
    CliRunner().invoke(command, ["--older-than", "24h"])
    assert not read.exists()


@pytest.mark.parametrize(
    ("folder", "state"),
    [*(("objects", "kernels"), ("modules", "compiled")), *(("targets",) * 2, ("runtime",) * 2)],
)
def test_entries_of_other_folders_are_listed_and_removed_as_well(folder, state, cache):
    kept = [cache.with_name(folder) / name for name in ("dd", "ee")]
    kept[0].parent.mkdir()
    for file in kept:
        file.write_bytes(bytes(1 << 20))
    lines = CliRunner().invoke(command).output.splitlines()
    assert lines[2].split() == ["2.0", "MiB", "0.0", "days", "ago", state, "2", "together"]
    CliRunner().invoke(command, ["--older-than", "0s"])
    assert not any(file.exists() for file in kept)


def test_an_empty_cache_and_a_wrong_duration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CliRunner().invoke(command).output.startswith("0 items in ")
    refused = CliRunner().invoke(command, ["--older-than", "long"])
    assert refused.exit_code == 2
    assert "--older-than" in refused.output
