"""``chameleon validate`` refuses what ``chameleon run`` refuses of a network, in the same words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from chameleon_cli.main import run as command_line
from chameleon_core.errors import ExitCode

onnx = pytest.importorskip("onnx")


def _write(file: Path, batch: int | str, last: str) -> None:
    """Write a convolution and an operator behind it."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node(last, ["y"], ["z"], name="last"),
    ]
    tensors = [
        [helper.make_tensor_value_info(name, kind, [batch, channels, 8, 8])]
        for name, channels in (("x", 3), ("z", 4))
    ]
    graph = helper.make_graph(nodes, "net", *tensors, [weights])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), file)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "p.yaml"
    file.write_text(
        f"model: {{onnx: net.onnx}}\ntarget: native\nbudget: {{measurements: 2}}\n"
        f"output: {tmp_path / 'run'}\n"
    )
    return file


@pytest.mark.parametrize(
    ("batch", "last", "said"),
    [
        (
            1,
            "RandomUniformLike",
            r"the compiler has no operator for node 'last' (RandomUniformLike)",
        ),
        ("n", "Relu", "the shape of input 'x' is open: [n, 3, 8, 8]"),
    ],
)
def test_validate_and_run_refuse_the_same(
    batch: int | str,
    last: str,
    said: str,
    pipeline: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
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

def evaluated():
    network, inputs = make()
    return network.eval(), inputs

def indifferent():
    return nn.Conv2d(3, 4, 3), torch.ones(1, 3, 8, 8)
"""


@pytest.mark.parametrize("command", ["validate", "run"])
@pytest.mark.parametrize("function", ["make", "evaluated", "indifferent"])
def test_a_network_in_training_mode_is_delivered_for_inference_and_told(
    function: str, command: str, pipeline: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    pipeline.with_name("net.py").write_text(NET)
    model = f"torch: {{source: 'net.py:{function}', compare: false}}"
    pipeline.write_text(pipeline.read_text().replace("onnx: net.onnx", model))
    unmeasured = ["--set", "budget.measurements=0"]
    assert command_line([command, str(pipeline), *unmeasured]) == ExitCode.OK
    text = capfd.readouterr().err
    assert text.count("network_in_training_mode") == (function == "make")
    if function == "make":
        assert "['body.1', 'body.2']" in text
        assert "call `.eval()`" in text
