"""The network of a finished run, as it is found again later."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._fallbacks import STRICT
from chameleon_core._loop.end import delivery
from chameleon_core._loop.end.result import RunResult
from chameleon_core._network_result import NetworkResult
from structlog.testing import capture_logs


def whole(folder):
    """Check a network by its only file."""
    if not (folder / "weights").exists():
        raise RuntimeError("weights cannot be read")


def confused(_):
    """Check nothing, as a plugin does whose author thought of other networks."""
    raise ConfigError("there is no such option", hint="remove it")


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A function from a frontend's check and a run folder to the network of the stored result."""
    delivered = tmp_path / "run" / "network"
    delivered.mkdir(parents=True)
    (delivered / "weights").touch()

    def read(check, folder="run"):
        complete = check if isinstance(check, str) else f"{check.__module__}:{check.__name__}"
        record = SimpleNamespace(complete=complete)
        registry = SimpleNamespace(record=lambda *_: record)
        monkeypatch.setattr(delivery.Registry, "default", lambda: registry)
        network = NetworkResult(folder=str(delivered))
        folder = tmp_path / folder
        result = RunResult(folder=folder, seconds=1.0, operators=(), network=network)
        return delivery.verify_delivery(result, "odd").network

    return read


def test_a_damaged_network_is_a_failure(stored, tmp_path):
    assert stored(whole).failure is None
    (tmp_path / "run/network/weights").unlink()
    assert "of no use: weights cannot be read" in stored(whole).failure
    assert stored(whole).folder is None


def test_a_network_may_lie_elsewhere_than_its_run(stored, tmp_path):
    assert stored(whole, "moved").failure is None, "the result names its folder"
    shutil.rmtree(tmp_path / "run/network")
    assert "the network is gone" in stored(whole, "moved").failure


@pytest.mark.parametrize("check", [confused, "no_such_module:check"])
def test_a_check_that_fails_itself_leaves_the_network_as_it_is(stored, monkeypatch, check):
    monkeypatch.delenv(STRICT)
    with capture_logs() as logs:
        network = stored(check)
    assert network.failure is None
    assert Path(network.folder).exists()
    assert [log["event"] for log in logs] == ["network_not_checked"]
    assert ("no such option" in logs[0]["problem"]) is (check is confused)
