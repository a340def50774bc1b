"""Servers are killed at random while candidates are measured: nothing is lost or stalls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "rpc_fleet.py"


def measured(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_five_minutes_of_killing_lose_nothing():
    told = measured("--chaos", "300")["chaos"]
    assert told["kills"] > 50
    assert told["measurements"] == told["distinct"] == told["candidates"]
    assert told["failed"] == {}
    assert told["longest_gap"] < told["run_timeout"] + 5.0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_devices_share_the_work():
    assert measured()["ratio"] >= 7.2
