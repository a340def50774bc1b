"""If a network and its reference disagree, a third implementation says which one is wrong."""

import json

import attrs
import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode
from chameleon_networks._checks.worker import NetworkCheck
from chameleon_networks._evaluation.network_cache import ReferenceOutputs
from chameleon_networks._evaluation.special_inputs import special_inputs
from chameleon_networks._evaluation.verify import samples_of
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.relax_utils import mutate, relax, tvm
from chameleon_networks._importers.options import OnnxOptions
from chameleon_networks._importers.sources import OnnxNetwork

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")

TEXT = "(float[4, 8] x) => (float[4, 8] y) { y = Tanh(x) }"


@pytest.fixture
def network(tmp_path):
    """A network whose answers nobody knows yet."""
    text = TEXT.replace("Tanh(x)", "Tanh(s)").replace("{", "{ s = Mul(x, w) ")
    weights = np.random.default_rng().uniform(0.5, 1.0, 8).astype(np.float32)
    file = onnx_file(tmp_path / "net.onnx", text, w=weights)
    return OnnxNetwork(OnnxOptions(source=str(file), compare=False))


@pytest.fixture
def result_of_wrong_answers(network, delivery_of):
    """What is delivered if onnxruntime is said to have given other numbers."""

    def deliver():
        source = NetworkFrontend(network)
        samples, special = samples_of(network.samples), special_inputs(network)
        run = network.framework("onnxruntime", 1)
        wrong = [[output + 1 for output in run(inputs)] for inputs in samples]
        known = ReferenceOutputs(
            reference="onnxruntime", outputs=wrong, special=[run(one.inputs) for one in special]
        )
        network.kept.store_outputs(known, samples, special)
        delivery = delivery_of(source)
        return source.deliver(delivery), delivery.folder

    return deliver


def test_a_reference_that_is_wrong_is_replaced_and_named(result_of_wrong_answers):
    result, folder = result_of_wrong_answers()
    assert (result.failure, result.reference) == (None, "onnx.reference")
    words = "onnxruntime is wrong: onnx.reference agrees with the network"
    assert result.disagreement.startswith(words)
    assert "its outputs are off by" in result.disagreement
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["verification"]["disagreement"] == result.disagreement


@pytest.mark.full
@pytest.mark.parametrize(
    ("wrong", "operator", "other"), [("y", "Tanh", "Mul"), ("sy", "Mul", "Tanh")]
)
def test_the_operator_at_which_two_references_part_is_named(
    wrong, operator, other, result_of_wrong_answers, monkeypatch
):
    values = OnnxNetwork.values

    def altered(self, names, samples):
        return [
            [array + (name in wrong) for name, array in zip(names, arrays, strict=True)]
            for arrays in values(self, names, samples)
        ]

    monkeypatch.setattr(OnnxNetwork, "values", altered)
    result, _ = result_of_wrong_answers()
    assert result.disagreement.startswith("onnxruntime is wrong: onnx.reference agrees")
    begin = result.disagreement.partition("; errors begin at ")[2]
    assert operator in begin
    assert other not in begin


def _broken(network):
    """The network, but imported with another operator than it has."""

    @relax.expr_functor.mutator
    class Replace(relax.PyExprMutator):
        def visit_call_(self, call):
            call = super().visit_call_(call)
            wrong = getattr(call.op, "name", "") == "relax.tanh"
            return relax.op.sin(call.args[0]) if wrong else call

    assert isinstance(network.imported, tvm.IRModule)
    module = mutate(network.graph.module, Replace(network.graph.module))
    network.graph = attrs.evolve(network.graph, module=module)
    return network


def test_a_network_that_is_wrong_is_not_delivered(network, delivery_of):
    source = NetworkFrontend(network)
    source.network = _broken(network)
    result = source.deliver(delivery_of(source))
    assert result.folder is None
    assert "compared with onnxruntime, its outputs are off by" in result.failure
    assert "onnx.reference agrees with onnxruntime" in result.failure
    assert result.disagreement is None


def test_the_check_before_tuning_asks_a_third_one_too(network, target, monkeypatch):
    right = OnnxNetwork.framework

    def framework(self, name, threads):
        run = right(self, name, threads)
        wrong = name == "onnxruntime"
        return lambda inputs: [output + wrong for output in run(inputs)]

    monkeypatch.setattr(OnnxNetwork, "framework", framework)
    report = NetworkCheck(network, target, 1).report(["NHWC"])
    assert report.reference == "onnx.reference"
    assert report.max_relative_error < 1e-5


@pytest.mark.full
def test_verify_compares_with_the_implementation_that_was_right(tmp_path, capfd):
    # onnxruntime 1.31.1 computes remainders of int64 in float64.
    text = "(int64[64] x) => (int64[64] y) { y = Mod<fmod = 1>(x, n) }"
    file = onnx_file(tmp_path / "net.onnx", text, n=np.array(1009))
    pipeline, run = tmp_path / "p.yaml", tmp_path / "run"
    model = {"onnx": {"source": str(file), "compare": False}}
    budget = {"measurements": 0}
    pipeline.write_text(json.dumps({"model": model, "budget": budget, "output": str(run)}))
    assert command_line(["run", str(pipeline)]) == ExitCode.OK
    said = capfd.readouterr().out
    assert "onnxruntime is wrong: onnx.reference agrees with the network" in said
    assert "errors begin at a node Mod" in said
    assert command_line(["verify", str(run)]) == ExitCode.OK
    assert "compared with onnx.reference" in capfd.readouterr().out


def test_numbers_that_all_of_float32_rounds_are_decided_in_float64(tmp_path):
    text = """(float[1, 8, 3000] x) => (float[1, 8, 3000] y) {
        moved = Add(x, far)
        y = InstanceNormalization<epsilon = 0.00001>(moved, one, zero)
    }"""
    far = np.linspace(4000, 5000, 8, dtype=np.float32).reshape(1, 8, 1)
    one, zero = np.ones(8, np.float32), np.zeros(8, np.float32)
    file = onnx_file(tmp_path / "net.onnx", text, far=far, one=one, zero=zero)
    network = OnnxNetwork(OnnxOptions(source=str(file), compare=False))
    x = np.ones((1, 8, 3000), np.float32)
    [exact] = network.framework("onnx.reference in float64", 1)([x])
    assert exact.dtype == np.float32
    np.testing.assert_array_equal(exact, 0)
    assert np.abs(network.framework("onnxruntime", 1)([x])[0]).max() > 0.1
    assert network.arbiters[-1] == "onnx.reference in float64"
