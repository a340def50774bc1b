"""``chameleon verify``: a delivered network on the user's inputs, and the place of its errors."""

import contextlib
import json
import re
from pathlib import Path

import attrs
import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode
from chameleon_networks._commands import runs, verifying
from chameleon_networks._commands.verifying import Comparison
from chameleon_networks._compile.unsupported_operator import empty_kernels
from chameleon_networks._evaluation.special_inputs import special_inputs
from chameleon_networks._evaluation.verify import Sample
from chameleon_networks._graph.relax_utils import mutate, relax, tvm
from chameleon_networks._importers.options import OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import network_of

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")

DATA = """
import numpy as np

def batches():
    for seed in range(2):
        yield {"x": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype("float32")}

def large():
    yield np.zeros((1, 3, 9, 9), "float32")

def none():
    return []

def failing():
    raise ValueError("no such file")
"""


def _write(file, last="Sigmoid"):
    """A network of two outputs and two branches."""
    text = f"""(float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y, float[1, 4, 8, 8] z) {{
        [conv] conv = Conv <pads = [1, 1, 1, 1]> (x, w)
        [tanh] left = Tanh(conv)
        [relu] right = Relu(conv)
        [add] sum = Add(left, right)
        [last] y = {last}(sum)
        [exp] z = Exp(right)
    }}"""
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    onnx_file(file, text, w=weights)


@pytest.fixture(scope="module")
def run(forked_networks, tmp_path_factory):
    """The folder of a run that measures nothing."""
    folder = tmp_path_factory.mktemp("verified")
    _write(folder / "net.onnx")
    (folder / "data.py").write_text(DATA)
    (folder / "p.yaml").write_text(
        "model: {onnx: {source: net.onnx, compare: false}}\n"
        "target: native\nbaselines: []\nbudget: {measurements: 0}\n"
    )
    output = folder / "run"
    assert command_line(["run", str(folder / "p.yaml"), "-o", str(output)]) == ExitCode.OK
    return output


def test_a_network_is_right_on_inputs_of_the_user_until_it_is_another_one(run, capfd, monkeypatch):
    data = run.with_name("data.py")
    words = ["verify", str(run / "network"), "--inputs", f"{data}:batches", "--json"]
    assert command_line(words) == ExitCode.OK
    value = json.loads(capfd.readouterr().out)
    assert (value["reference"], value["batches"], value["cause"]) == ("onnxruntime", 2, "")
    assert [output["shape"] for output in value["outputs"]] == [[1, 4, 8, 8]] * 2
    assert all(0 <= output["max_relative_error"] < 1e-5 for output in value["outputs"])
    model = run.with_name("net.onnx")
    try:
        _write(model, "Tanh")
        monkeypatch.setattr(runs, "check_unchanged", lambda _: None)
        assert command_line(words[:-1]) == ExitCode.NO_VALID_RESULT
    finally:
        _write(model)
    out, err = capfd.readouterr()
    assert re.search(r"^y +1 x 4 x 8 x 8 +\S+ +no$", out, re.MULTILINE)
    assert re.search(r"^z +1 x 4 x 8 x 8 +\S+ +yes$", out, re.MULTILINE)
    assert "compiled again from the run's records it is right" in err


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("large", "batch 1 of .* has the shape [1, 3, 9, 9] instead of [1, 3, 8, 8]"),
        ("none", "none yields no batch"),
        ("failing", "failed after 0 batches: .*no such file"),
        ("absent", "has no 'absent'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(function, words, run, capfd):
    source = f"{run.with_name('data.py')}:{function}"
    assert command_line(["verify", str(run), "--inputs", source]) == ExitCode.USAGE
    pattern = ".*".join(map(re.escape, words.split(".*")))
    assert re.search(f"error: --inputs: .*{pattern}", capfd.readouterr().err)


def _comparison(network, target, **operators):
    """A comparison of a network that is imported with other operators than it has."""

    @relax.expr_functor.mutator
    class Replace(relax.PyExprMutator):
        def visit_call_(self, call):
            other = operators.get(str(getattr(call.op, "name", "")).rpartition(".")[2])
            call = super().visit_call_(call)
            return relax.Call(tvm.ir.Op.get(other), call.args, call.attrs) if other else call

    graph = network.graph
    network.graph = attrs.evolve(graph, module=mutate(graph.module, Replace(graph.module)))
    return Comparison(
        network=network,
        folder=Path(),
        manifest={},
        kernels=empty_kernels(target),
        target=target,
        threads=1,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("operators", "output", "place"),
    [
        ({"tanh": "relax.sin"}, 0, "node 'tanh' (Tanh)"),
        ({"relu": "relax.tanh"}, 0, "node 'relu' (Relu)"),
        ({"sigmoid": "relax.tanh"}, 0, "node 'last' (Sigmoid)"),
        ({"tanh": "relax.sin", "exp": "relax.sin"}, 1, "node 'exp' (Exp)"),
    ],
)
def test_the_operator_at_which_errors_begin(operators, output, place, target, tmp_path):
    _write(tmp_path / "net.onnx")
    network = network_of(OnnxOptions(source=str(tmp_path / "net.onnx"), layout="NHWC"))
    comparison = _comparison(network, target, **operators)
    cause = comparison._cause(network.samples(np.random.default_rng(0)), output, 1e-3)
    assert cause.startswith(f"errors begin at {place}: its outputs are off by "), cause


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(4), persistent=False)

    def forward(self, x):
        return torch.tanh(self.linear(x) + self.kept + x.as_strided((2, 4), (1, 2))).exp()

def make():
    return Net().eval(), torch.randn(4, 2).t()
"""


@pytest.mark.full
def test_the_operator_of_torch_at_which_errors_begin(target, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    network = network_of(TorchOptions(source=f"{tmp_path / 'net.py'}:make", layout="NHWC"))
    comparison = _comparison(network, target, tanh="relax.sin")
    cause = comparison._cause(network.samples(np.random.default_rng(0)), 0, 1e-3)
    assert cause.startswith("errors begin at operator tanh (net.py:11: "), cause


class _Process(contextlib.AbstractContextManager):
    """A process that runs a function."""

    def __init__(self, run):
        self.name, self.alive, self.outputs = "onnxruntime", True, run

    def __exit__(self, *_):
        pass


def test_special_inputs_are_compared_and_lead_to_an_operator(tmp_path, target, monkeypatch):
    text = "(float[4, 8] x) => (float[4, 8] y) { y = Relu(x) }"
    network = network_of(OnnxOptions(source=str(onnx_file(tmp_path / "net.onnx", text))))
    right = _Process(lambda inputs: [np.maximum(inputs[0], 0)])
    wrong = _Process(lambda inputs: [np.maximum(np.nan_to_num(inputs[0]), 0)])
    monkeypatch.setattr(verifying, "reference_process", lambda *_, **__: right)
    monkeypatch.setattr(verifying, "delivered_process", lambda *_, **__: wrong)
    asked = []
    monkeypatch.setattr(Comparison, "_cause", lambda _, *place: asked.append(place) or "there")
    comparison = attrs.evolve(
        _comparison(network, target), manifest={"verification": {"tolerance": 1e-3}}
    )
    samples = [Sample(inputs=network.samples(np.random.default_rng(0)))]
    plain = comparison.of(samples)
    assert (plain.special, plain.cause, plain.outputs[0].right) == ("", "", True)
    found = comparison.of(samples, special_inputs(network))
    assert found.special.startswith("with NaN and infinities as inputs, output 0 has numbers")
    assert found.cause == "there"
    [[inputs, output, _]] = asked
    assert (np.isnan(inputs[0]).any(), output) == (True, 0)
