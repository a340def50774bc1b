"""Programs that pt2e has quantized are read and computed in integers.

Their steps are those of ``quantized_decomposed``, which torch defines; what quantizes a network by
them is torchao, which is not needed to read one.
"""

import subprocess
import sys

import numpy as np
import pytest
import torch
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._frameworks.inference import TORCH
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import TorchNetwork
from marks import full

pytest.importorskip("torch.ao.quantization.fx._decomposed")

SOURCE = '''
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn
from torch.nn import functional

steps = torch.ops.quantized_decomposed


def pair(x, scale, zero, low=0, high=255, dtype=torch.uint8):
    made = steps.quantize_per_tensor(x, scale, zero, low, high, dtype)
    return steps.dequantize_per_tensor(made, scale, zero, low, high, dtype)


class Weights(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        weights = torch.randn(shape) / shape[1]
        scale = weights.flatten(1).abs().amax(1) / 127
        zero = torch.zeros(shape[0], dtype=torch.int64)
        limits = (0, -127, 127, torch.int8)
        made = steps.quantize_per_channel(weights, scale, zero, *limits)
        self.register_buffer("made", made)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", zero)
        self.bias = nn.Parameter(torch.randn(shape[0]) / 4)

    def forward(self):
        return steps.dequantize_per_channel(
            self.made, self.scale, self.zero, 0, -127, 127, torch.int8
        )


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Weights(16, 3, 3, 3)
        self.second = Weights(16, 16, 3, 3)
        self.third = Weights(10, 16)

    def forward(self, x):
        x = pair(x, 0.03, 128)
        x = functional.conv2d(x, self.first(), self.first.bias, padding=1)
        x = pair(torch.relu(x), 0.02, 0)
        x = pair(functional.max_pool2d(x, 2), 0.02, 0)
        y = functional.conv2d(x, self.second(), self.second.bias, padding=1)
        x = pair(torch.relu(y + x), 0.03, 0, 0, 127)
        x = pair(x.mean((2, 3)), 0.02, -100, -127, 127, torch.int8)
        return pair(functional.linear(x, self.third(), self.third.bias), 0.03, 120)


def network():
    return Network(), (torch.randn(1, 3, 12, 12),)


class Dynamic(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weights = Weights(10, 48)
        self.dtype = dtype

    def forward(self, x):
        limits = torch.iinfo(self.dtype).min, torch.iinfo(self.dtype).max
        scale, zero = steps.choose_qparams.tensor(x, *limits, 1e-6, self.dtype)
        made = steps.quantize_per_tensor.tensor(x, scale, zero, *limits, self.dtype)
        made = steps.dequantize_per_tensor.tensor(made, scale, zero, *limits, self.dtype)
        return functional.linear(made, self.weights(), self.weights.bias)


def dynamic_uint8():
    return Dynamic(torch.uint8), (torch.randn(5, 48),)


def dynamic_int8():
    return Dynamic(torch.int8), (torch.randn(5, 48),)


def exported():
    """As convert_pt2e returns it: a module of a program that was exported before."""
    module, inputs = network()
    return torch.export.export(module.eval(), inputs).module(), inputs
'''


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "quantized.py"
    file.write_text(SOURCE)
    return file


@pytest.mark.parametrize("function", [full("network"), "exported"])
def test_programs_of_pt2e(source, as_guessed, function):
    network = TorchNetwork(TorchOptions(source=f"{source}:{function}", compare=False))
    module, fusions = prepared_network(network)
    assert network.quantized
    assert [fusion.spec.dtype for fusion in fusions] == ["int8"] * 3
    assert [fusion.spec.output_dtype for fusion in fusions] == ["uint8"] * 3
    left = count_unfused_operators(module, fusions)
    # What is pooled is not dequantized before, and a range of 7 bits is one more bound.
    assert left["nn.max_pool2d"] == left["minimum"] == left["maximum"] == 1
    assert left["dequantize"] == 2
    # A step of the output is 0.03; torch multiplies with 1 / scale, where ours is rounded once.
    assert difference(network, as_guessed(network)) <= 0.031


@pytest.mark.parametrize("function", [full("dynamic_uint8"), "dynamic_int8"])
def test_ranges_that_are_computed(source, as_guessed, function):
    network = TorchNetwork(TorchOptions(source=f"{source}:{function}", compare=False))
    assert [fusion.spec.dtype for fusion in prepared_network(network)[1]] == ["int8"]
    assert difference(network, as_guessed(network)) <= 1e-4


def difference(network, run):
    """How far a network's outputs, as kernels of first guesses compute them, are from torch's."""
    inputs = network.samples(np.random.default_rng(0))
    [wanted] = network.framework(TORCH, 2)(inputs)
    return float(np.abs(run(*inputs) - wanted).max())


READ = """
import sys
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import TorchNetwork
network = TorchNetwork(TorchOptions(source=sys.argv[1], compare=False))
assert {fusion.spec.dtype for fusion in prepared_network(network)[1]} == {"int8"}
"""


@pytest.mark.full
def test_a_saved_program_is_read_where_nobody_has_imported_its_steps(tmp_path):
    namespace = {}
    exec(SOURCE, namespace)  # noqa: S102 - the text is above
    module, inputs = namespace["network"]()
    file = tmp_path / "network.pt2"
    torch.export.save(torch.export.export(module.eval(), inputs), file)
    subprocess.run([sys.executable, "-c", READ, str(file)], check=True)
