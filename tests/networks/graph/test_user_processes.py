"""Processes that figures come from are like a user's: no variable of ours, no core of their own."""

import os
from pathlib import Path

import numpy as np
import pytest
from chameleon_core._network_result import NetworkResult
from chameleon_networks._evaluation import latency
from chameleon_networks._evaluation.latency import measure_footprint
from chameleon_networks._evaluation.processes import delivered_process
from chameleon_networks._frameworks import inference
from chameleon_networks._graph.relax_utils import relax
from chameleon_system._thread_limit import allowed_cores

from ..modules import module_of  # noqa: TID252 - shared by folders

SHAPE = (4, 8)


@pytest.fixture
def folder(deliver):
    """A delivered network of one operator."""
    relu = relax.op.nn.relu
    return Path(deliver(module_of(lambda emit, x: emit(relu(x)), (SHAPE, "float32"))).folder)


def test_a_delivered_network_has_the_variables_of_its_caller(folder, monkeypatch):
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND"):
        monkeypatch.delenv(name, raising=False)
    with delivered_process("network", folder, threads=2) as process:
        [output] = process.outputs([np.full(SHAPE, -1, np.float32)])
        assert not output.any()
        about = process.about()
    assert about["variables"] == dict(os.environ)
    assert about["memory_bytes"] > 1e6
    assert about["cores"] == allowed_cores()


def test_frameworks_choose_their_threads_unless_there_are_fewer():
    assert inference.explicit_threads(10**6) is None
    assert inference.explicit_threads(0) == 0


def test_a_new_process_gives_an_answer(folder):
    footprint = measure_footprint(folder)
    assert 0 < (footprint.first_answer_seconds or 0) < 300
    assert (footprint.memory_bytes or 0) > 1e6
    files = [file for file in folder.iterdir() if file.name != "objects.tar"]
    assert footprint.disk_bytes == sum(file.stat().st_size for file in files if file.is_file())


def test_what_gives_no_answer_has_no_footprint(folder):
    (folder / "weights.bin").unlink()
    assert measure_footprint(folder) == NetworkResult.Footprint()


def test_a_process_that_takes_too_long_ends_no_run(folder, monkeypatch):
    monkeypatch.setattr(latency, "_SECONDS", 0.001)
    assert measure_footprint(folder) == NetworkResult.Footprint()
