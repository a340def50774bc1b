"""A network is exported once, whichever process reads it, and its source is read once."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from chameleon_networks._evaluation.messages import describe_network, network_from
from chameleon_networks._importers.imported_network import BucketedNetwork
from chameleon_networks._importers.options import BuiltinOptions, TorchOptions
from chameleon_networks._importers.sources import network_of
from chameleon_networks._shapes import Buckets
from marks import full

NAMED = """
import dataclasses
import torch

@dataclasses.dataclass
class Output:
    y: torch.Tensor

class Net(torch.nn.Module):
    def forward(self, x):
        return Output(torch.relu(x))

def net():
    torch.export.register_dataclass(Output)
    return Net(), (torch.ones(2, 3),)
"""


@pytest.fixture
def export(monkeypatch):
    """What torch exports with, which counts its calls."""
    monkeypatch.setattr(torch.export, "export", Mock(wraps=torch.export.export))
    return torch.export.export


def _elsewhere(network):
    return network_from(json.loads(json.dumps(describe_network(network))))


@pytest.mark.parametrize(("dtype", "times"), [("float32", 1), full("float16", 2)])
def test_other_processes_read_what_is_exported(dtype, times, export):
    network = network_of(BuiltinOptions(network="alexnet_small", dtype=dtype))
    copies = [_elsewhere(network), _elsewhere(network)]
    inputs = network.samples(np.random.default_rng(0))
    expected = network.framework("torch", 1)(inputs)
    for copy in copies:
        np.testing.assert_array_equal(copy.framework("torch", 1)(inputs), expected)
        assert copy.half == network.half
        assert copy.imported.script() == network.imported.script()
        assert copy.graph.locations == network.graph.locations, "messages name the same lines"
    assert export.call_count == times, "in half precision it is exported in float32 as well"


@pytest.mark.full
def test_a_network_in_buckets_reads_its_source_once(export):
    shapes = {"image": (Buckets(buckets=(1, 2, 4)), 3, 32, 32)}
    bucketed = BucketedNetwork(network_of, BuiltinOptions(network="resnet_small", shapes=shapes))
    for extent in (1, 2, 4, 4, 3, 3):
        [images] = bucketed.with_extents((extent,)).samples(np.random.default_rng(0))
        assert len(images) == extent
    assert export.call_count == 1 + len({2, 4, 3}), "the example has the extents of the first"
    assert len({call.args[0] for call in export.call_args_list}) == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_what_cannot_be_kept_or_recalled_is_exported_again(tmp_path, export, damaged):
    (tmp_path / "net.py").write_text(NAMED)
    request = describe_network(network_of(TorchOptions(source=f"{tmp_path}/net.py:net")))
    assert not request["network"]["programs"], "torch cannot write a type that has no name"
    if damaged:
        (tmp_path / "program.pt2").write_bytes(b"no program")
        request["network"]["programs"] = {"program": str(tmp_path / "program.pt2")}
    [output] = network_from(request).framework("torch", 1)([np.full((2, 3), -1, np.float32)])
    assert export.call_count == 2
    assert not output.any()
