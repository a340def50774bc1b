"""MetaSchedule on whole networks: its progress, and one small network for real."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from chameleon_networks.importers.options import BuiltinOptions
from chameleon_networks.importers.sources import BuiltinNetwork
from chameleon_networks.rivals.launch import tune_network_with_metaschedule
from chameleon_networks.running.processes import delivered_process
from chameleon_tvm.rivals.metaschedule import Progress


def _result(*seconds):
    return SimpleNamespace(run_secs=seconds or None, error_msg=None if seconds else "no")


def test_the_networks_time_is_the_weighted_sum_once_all_tasks_have_one():
    progress = Progress(started=time.time(), wall_seconds=0.0, weights=(2.0, 1.0))
    progress.add(0, [_result(3.0, 5.0), _result()])
    assert (progress.best_seconds, progress.trials, progress.failed) == (None, 2, 1)
    progress.add(1, [_result(1.0)])
    assert progress.best_seconds == 9.0
    progress.add(0, [_result(2.0), _result(7.0)])
    assert [point["best_seconds"] for point in progress.history] == [None, 9.0, 5.0]
    assert not progress.expired, "there is no limit"


def test_it_expires_by_the_clock():
    progress = Progress(started=time.time() - 10, wall_seconds=9.0)
    assert not progress.expired
    progress.add(0, [_result(1.0)])
    assert progress.expired


@pytest.mark.long
def test_a_small_network_is_tuned_and_right(target, tmp_path):
    network = BuiltinNetwork(BuiltinOptions(network="resnet_small"))
    answer = tune_network_with_metaschedule(
        network, tmp_path / "network", target=target, threads=2, wall_seconds=15.0, batch_size=4
    )
    assert answer["tasks"] > 6
    assert answer["trials"] > 0
    assert answer["history"][-1]["trials"] == answer["trials"]
    inputs = network.samples(np.random.default_rng(0))
    [want] = network.framework("torch", 1)(inputs)
    with delivered_process("theirs", tmp_path / "network", threads=2) as process:
        [got] = process.outputs(inputs)
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
