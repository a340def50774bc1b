"""A small network, tuned by MetaSchedule for real."""

import os
import sys

import numpy as np
import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._evaluation.processes import delivered_process
from chameleon_networks._importers.options import BuiltinOptions
from chameleon_networks._importers.sources import BuiltinNetwork
from chameleon_tvm._device.targets import TVMTargets
from network_metaschedule import tuned_by_metaschedule


@pytest.mark.long
def test_a_small_network_is_tuned_and_right(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    target = TVMTargets(NoOptions()).resolve("native")
    network = BuiltinNetwork(BuiltinOptions(network="resnet_small"))
    answer = tuned_by_metaschedule(
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
