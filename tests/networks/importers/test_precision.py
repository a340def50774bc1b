"""Networks in half precision are compiled in float32, those in float32 compared with float64."""

import textwrap

import numpy as np
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_networks._evaluation.verify import ROUNDINGS
from chameleon_networks._frameworks.precision import half_type
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import BuiltinNetwork, TorchNetwork
from chameleon_tvm._types import STORAGE
from marks import full

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(8, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.last = nn.Linear(8, 5)
            self.register_buffer("scale", torch.full((8, 1, 1), 0.5))

        def forward(self, x):
            kind = self.first.weight.dtype
            x = torch.relu(self.norm(self.first(x.float().to(kind))))
            return self.last((x * self.scale).mean((2, 3)))

    def float32():
        return Net(), (torch.zeros(2, 8, 10, 12),)

    def float16():
        return Net().half(), (torch.zeros(2, 8, 10, 12).half(),)

    def bfloat16():
        return Net().to(torch.bfloat16), (torch.zeros(2, 8, 10, 12, dtype=torch.bfloat16),)

    def only_inside():
        return Net().to(torch.bfloat16), (torch.zeros(2, 8, 10, 12),)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(NET), encoding="utf-8")
    return path


def _torch(source):
    return TorchNetwork(TorchOptions(source=str(source)))


def _tasks(network):
    return NetworkFrontend(network).tasks("llvm")


def _arguments(task):
    return {"operator": task.operator, **task.arguments}


def _error(got, wanted):
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("kind", [full("float16"), "bfloat16"])
def test_the_tasks_are_those_of_float32_and_the_answers_nearly(file, kind):
    network, plain = _torch(f"{file}:{kind}"), _torch(f"{file}:float32")
    assert (network.half, plain.half) == (kind, None)
    [first, last], wanted = (map(_arguments, _tasks(of)) for of in (network, plain))
    # The normalization is folded into the first weights.
    assert last.pop("exact_weights") == kind
    assert [first, last] == [*wanted]
    assert network.frameworks[:2] == ("torch float32", "torch")
    assert plain.frameworks[0] == "torch"
    inputs = network.samples(np.random.default_rng(0))
    assert [array.dtype for array in inputs] == [np.float32]
    answers = [network.framework(name, 1)(inputs)[0] for name in ("torch float32", "torch")]
    assert [array.dtype for array in answers] == [np.float32, np.float32]
    assert 0 < _error(*answers) <= ROUNDINGS * STORAGE[kind].rounding


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_exact_answers_are_in_float64(file, kind):
    network = _torch(f"{file}:{kind}")
    assert network.exact is not None
    inputs = network.samples(np.random.default_rng(0))
    [exact] = network.framework(network.exact, 1)(inputs)
    [wanted] = network.framework(network.frameworks[0], 1)(inputs)
    assert (exact.dtype, wanted.dtype) == (np.float64, np.float32)
    assert 0 < _error(wanted, exact) < 1e-5
    assert all(tensor.dtype == torch.float32 for tensor in network.float_program.parameters())


def test_samples_are_the_same_numbers_in_both_precisions(file):
    [inputs] = _torch(f"{file}:bfloat16").samples(np.random.default_rng(0))
    np.testing.assert_array_equal(torch.from_numpy(inputs).bfloat16().float().numpy(), inputs)
    assert len(np.unique(inputs)) > 500


def test_weights_alone_make_a_network_half_precise(file):
    network = _torch(f"{file}:only_inside")
    assert network.half == "bfloat16"
    assert half_type(network.float_program) is None
    assert [task.operator for task in _tasks(network)] == ["conv2d", "dense"]


def test_a_saved_program_in_half_precision(file, tmp_path):
    saved = tmp_path / "net.pt2"
    torch.export.save(_torch(f"{file}:bfloat16").program, saved)
    network = _torch(saved)
    assert network.half == "bfloat16"
    assert len(_tasks(network)) == 2


def test_token_ids_stay_what_they_are():
    network = BuiltinNetwork(BuiltinOptions(network="bert_small", dtype="bfloat16"))
    [inputs] = network.samples(np.random.default_rng(0))
    assert inputs.dtype == np.int64
    answers = [network.framework(name, 1)([inputs])[0] for name in ("torch float32", "torch")]
    assert _error(*answers) <= ROUNDINGS * STORAGE["bfloat16"].rounding


def _half_precision_file(path, kind):
    text = f"({kind}[3, 4] x) => ({kind}[3, 5] y) {{ y = MatMul(x, w) }}"
    weights = np.linspace(-1, 1, 20).reshape(4, 5)
    return onnx_file(path, text, w=weights.astype(STORAGE[kind].array_type))


def test_an_onnx_file_in_float16_is_computed_in_float32(tmp_path):
    path = _half_precision_file(tmp_path / "net.onnx", "float16")
    [task] = make_frontend(OnnxOptions(source=str(path))).tasks("llvm")
    sizes = {"dtype": "float32", "input": (3, 4), "units": 5}
    assert dict(task.arguments) == {**sizes, "exact_weights": "float16"}


def test_an_onnx_file_in_bfloat16_is_refused(tmp_path):
    path = _half_precision_file(tmp_path / "net.onnx", "bfloat16")
    with pytest.raises(ConfigError, match="are in bfloat16") as caught:
        make_frontend(OnnxOptions(source=str(path))).tasks("llvm")
    assert "float32" in str(caught.value.hint)
