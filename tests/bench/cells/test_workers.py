"""Processes of replayed cells: those that die cost no more than their cell, and say what broke."""

import os
import signal

import pytest
from chameleon_bench._cells.execute import Workers
from chameleon_bench._cells.running import CellResult
from chameleon_core._errors import ExitCode, RunFolderError
from chameleon_core._loop.interruption import Interruption, RunInterrupted

from ..conftest import WORKERS  # noqa: TID252 - tests are no package
from .test_run import REPLAY


@pytest.fixture
def cells(load):
    return list(load(REPLAY, "seeds=4").cells())


@pytest.fixture
def ended():
    """What was told of each cell."""
    return []


def run(workers, cells, ended, interruption=None):
    workers.run(cells, interruption or Interruption(), lambda *told: ended.append(told))


@pytest.mark.full
def test_a_worker_that_died_while_it_was_idle_is_replaced(cells, ended):
    with Workers(1, WORKERS) as workers:
        run(workers, cells[:1], ended)
        (worker,) = workers._workers
        os.kill(worker.child.pid, signal.SIGKILL)
        assert worker.child.wait(240)
        run(workers, cells[1:2], ended)
    assert ended == [(cell, None) for cell in cells[:2]]


def test_one_that_dies_over_a_cell_costs_that_cell(cells, ended):
    with Workers(1, "os:abort") as workers:
        run(workers, cells[:2], ended)
    words = "its process died with exit code -6"
    assert ended == [(cell, words) for cell in cells[:2]]
    assert {CellResult.read(cell).failure for cell in cells[:2]} == {words}


@pytest.mark.parametrize("plugins", [WORKERS, "os:abort"])
def test_a_result_that_cannot_be_written_is_the_folders_fault(cells, ended, plugins):
    cells[0].result.mkdir(parents=True)
    with Workers(1, plugins) as workers, pytest.raises(RunFolderError) as raised:
        run(workers, cells[:1], ended)
    assert raised.value.exit_code is ExitCode.USAGE
    assert "space" in raised.value.hint


def test_an_interrupted_suite_leaves_no_process(cells, ended):
    interruption = Interruption()
    interruption.request()
    with Workers(2, WORKERS) as workers:
        with pytest.raises(RunInterrupted):
            run(workers, cells, ended, interruption)
        assert not any(worker.child.alive for worker in workers._workers)
