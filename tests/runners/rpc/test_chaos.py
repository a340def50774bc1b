"""Servers are killed at random while candidates are measured: nothing is lost or stalls."""

import json
import sys
from pathlib import Path

import pytest
from programs import completed

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "rpc_fleet.py"


def measured(*arguments):
    return json.loads(completed([sys.executable, BENCHMARK, *arguments]).stdout)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_five_minutes_of_killing_lose_nothing():
    report = measured("--chaos", "300")["chaos"]
    assert report["kills"] > 50
    assert report["measurements"] == report["distinct"] == report["candidates"]
    assert report["failed"] == {}
    assert report["longest_gap"] < report["run_timeout"] + 5.0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_devices_share_the_work():
    assert measured()["ratio"] >= 7.2
