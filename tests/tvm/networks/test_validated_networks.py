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
        (1, "Det", r"the compiler has no operator for node 'last' (Det)"),
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
    told = []
    for command in ("validate", "run"):
        capfd.readouterr()
        assert command_line([command, str(pipeline)]) == ExitCode.USAGE
        lines = capfd.readouterr().err.splitlines()
        assert any(line.endswith(said) for line in lines), lines
        told.append([line for line in lines if line.startswith("hint: ")])
    assert told[0] == told[1]
    if batch == "n":
        [fixed] = re.findall(r"`(model: .*?)`", told[0][0])
        _, _, rest = pipeline.read_text().partition("\n")
        pipeline.write_text(f"{fixed}\n{rest}")
        assert command_line(["validate", str(pipeline)]) == ExitCode.OK
