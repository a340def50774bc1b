"""``chameleon validate`` refuses what ``chameleon run`` refuses of a network, in the same words."""

import json
import re

import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode
from chameleon_networks._importers.torch.inference import evaluated
from marks import full
from structlog.testing import capture_logs
from torch import nn

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")


def _write(file, batch, last):
    """Write a convolution and an operator behind it."""
    text = f"""(float[{batch}, 3, 8, 8] x) => (float[{batch}, 4, 8, 8] z) {{
        y = Conv <pads = [1, 1, 1, 1]> (x, w)
        [last] z = {last}(y)
    }}"""
    onnx_file(file, text, w=np.ones((4, 3, 3, 3), np.float32))


@pytest.fixture
def pipeline(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        f"model: {{onnx: net.onnx}}\ntarget: native\nbudget: {{measurements: 2}}\n"
        f"runner: {{workers: 1}}\noutput: {tmp_path / 'run'}\n"
    )
    return file


@pytest.mark.parametrize(
    ("batch", "last", "said"),
    [
        full(
            1,
            "RandomUniformLike",
            "node 'last' (RandomUniformLike) cannot be compiled: the compiler has no such operator",
        ),
        ("n", "Relu", "the shape of input 'x' is open: [n, 3, 8, 8]"),
    ],
)
def test_validate_and_run_refuse_the_same(batch, last, said, pipeline, capfd):
    _write(pipeline.with_name("net.onnx"), batch, last)
    assert command_line(["validate", str(pipeline), "--quick"]) == ExitCode.OK
    hints = []
    for command in ("validate", "run"):
        capfd.readouterr()
        assert command_line([command, str(pipeline)]) == ExitCode.USAGE
        lines = capfd.readouterr().err.splitlines()
        assert any(line.endswith(said) for line in lines), lines
        hints.append([line for line in lines if line.startswith("hint: ")])
    assert hints[0] == hints[1]
    if batch == "n":
        [fixed] = re.findall(r"`(model: .*?)`", hints[0][0])
        _, _, rest = pipeline.read_text().partition("\n")
        pipeline.write_text(f"{fixed}\n{rest}")
        assert command_line(["validate", str(pipeline)]) == ExitCode.OK


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())

    def forward(self, x):
        return self.body(x)

def make():
    return Net(), torch.ones(1, 3, 8, 8)
"""


@pytest.mark.full
@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_network_in_training_mode_is_delivered_for_inference_and_told(command, pipeline, capfd):
    pipeline.with_name("net.py").write_text(NET)
    model = "torch: {source: 'net.py:make', compare: false}"
    pipeline.write_text(pipeline.read_text().replace("onnx: net.onnx", model))
    unmeasured = ["--set", "budget.measurements=0"]
    assert command_line([command, str(pipeline), *unmeasured]) == ExitCode.OK
    text = capfd.readouterr().err
    assert text.count("network_in_training_mode") == 1
    assert "['body.1', 'body.2']" in text
    assert "Call `.eval()`" in text


def test_nothing_is_told_of_modules_that_compute_the_same_in_training():
    body = nn.Sequential(nn.BatchNorm2d(4), nn.Dropout())
    with capture_logs() as logs:
        assert not evaluated(nn.Conv2d(3, 4, 3)).training
        evaluated(body.eval())
        assert not logs
        evaluated(body.train())
    assert [log["modules"] for log in logs] == [["0", "1"]]


def _write_refused(file):
    """A network with two of an operator that nothing converts, one of a custom operator, and more.

    The reshape after the random numbers needs a value; what follows the custom operator has no
    known shape.
    """
    text = """(float[n, 4] x, int64[2] shape) => (float[n, 4] c, float[n, 4] f, float[n, 4] g) {
        [first] a = RandomUniformLike(x)
        [second] b = RandomUniformLike(a)
        [reshape] c = Reshape(b, shape)
        [own] d = mine.Own(b)
        e = Relu(d)
        [other] f = mine.Own(e)
        g = Relu(x)
    }"""
    onnx_file(file, text, opsets='"" : 18, "mine" : 1')


def test_coverage_has_all_operators_and_what_is_missing(pipeline, capfd):
    file = pipeline.with_name("net.onnx")
    _write_refused(file)
    assert command_line(["validate", "--coverage", "--json", str(file)]) == ExitCode.USAGE
    out, err = capfd.readouterr()
    operators = {one["name"]: one for one in json.loads(out)["operators"]}
    counts = {name: (one["occurrences"], one["assumed"]) for name, one in operators.items()}
    assert counts == {"RandomUniformLike": (2, 0), "Own": (2, 0), "Relu": (2, 1), "Reshape": (1, 0)}
    lacking = "(and 1 more of them): the compiler has no such operator"
    reasons = {
        "RandomUniformLike": [f"node 'first' (RandomUniformLike) {lacking}"],
        "Own": [f"node 'own' (Own) {lacking}"],
        "Reshape": ["node 'reshape' (Reshape): it needs the value of 'shape' before"],
        "Relu": [],
    }
    assert {name: list(one["missing"]) for name, one in operators.items()} == reasons
    told = [reason for listed in reasons.values() for reason in listed]
    assert all(reason in err for reason in told)
    [way_out] = operators["Reshape"]["missing"].values()
    assert "Make it a constant of the file" in way_out
    # A run refuses the network with the same reasons.
    pipeline.write_text(
        pipeline.read_text().replace("net.onnx", "{source: net.onnx, shapes: {x: [1, 4]}}")
    )
    assert command_line(["validate", str(pipeline)]) == ExitCode.USAGE
    err = capfd.readouterr().err
    assert all(reason.replace(": ", " cannot be compiled: ") in err for reason in told)
    assert command_line(["validate", "--coverage", str(pipeline)]) == ExitCode.USAGE
    assert re.search(r"^Relu +2 +1 by their name alone$", capfd.readouterr().out, re.MULTILINE)


SURVEYED = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        if self.bad:
            x = torch.mode(torch.linalg.matrix_exp(x) + torch.linalg.matrix_exp(-x))[0]
        return x.relu()

def make():
    Net.bad = False
    return Net().eval(), torch.ones(2, 4, 4)

def refused():
    Net.bad = True
    return Net().eval(), torch.ones(2, 4, 4)
"""


def test_coverage_of_a_network_of_torch(tmp_path, capfd):
    file = tmp_path / "net.py"
    file.write_text(SURVEYED)
    assert command_line(["validate", "--coverage", f"{file}:make"]) == ExitCode.OK
    assert capfd.readouterr().out.splitlines()[1].split() == ["relu", "1", "yes"]
    assert command_line(["validate", "--coverage", f"{file}:refused"]) == ExitCode.USAGE
    out, err = capfd.readouterr()
    rows = {name: rest for name, *rest in map(str.split, out.splitlines())}
    assert rows["linalg_matrix_exp"] == ["2", "no"]
    assert rows["relu"] == ["1", "yes"]
    assert "operator linalg_matrix_exp (net.py:7" in err
    assert "(and 1 more of them): the compiler has no such operator" in err
    assert "operator mode" in err


def test_coverage_is_of_networks(tmp_path, capfd):
    file = tmp_path / "p.yaml"
    file.write_text("model: {operators: [{dense: {input: [8, 8], units: 8}}]}\ntarget: native\n")
    assert command_line(["validate", "--coverage", str(file)]) == ExitCode.USAGE
    assert "is no network with operators to survey" in capfd.readouterr().err
