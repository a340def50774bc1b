"""Workers of suites that run side by side do not sit on one core."""

import subprocess
import sys

import pytest
from chameleon_bench._cells.worker import claim_core

CLAIM = """
import sys
from pathlib import Path
from chameleon_bench._cells.worker import claim_core
print(claim_core([3, 5], Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claiming(tmp_path):
    """Starts processes that claim one of two cores and live on: what each claimed, and itself."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(tmp_path / "claims")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process.stdout.readline().strip(), process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_every_process_has_a_core_of_its_own(claiming):
    assert [claiming()[0] for _ in range(3)] == ["3", "5", "None"]


def test_a_process_that_dies_gives_its_core_back(claiming):
    (first, process), (second, _) = claiming(), claiming()
    assert (first, second) == ("3", "5")
    process.kill()
    process.wait()
    assert claiming()[0] == "3"


def test_where_claims_cannot_be_kept_there_are_none(tmp_path):
    (tmp_path / "file").touch()
    assert claim_core([0], tmp_path / "file") is None
