"""Operators of a network are called what their user calls them."""

import json
import textwrap

import numpy as np
import pytest
import torch
from chameleon_cli._main import run as command_line
from chameleon_networks._evaluation.profile import AROUND, summed
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._importers.options import OnnxOptions, TorchOptions
from chameleon_tvm._sources import named_object
from chameleon_tvm._words import identifier, symbol_of
from marks import full

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

NETS = """
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.expand = nn.Conv2d(8, 16, 1)
            self.depthwise = nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=16)
            self.project = nn.Conv2d(16, 8, 1, bias=False)
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x):
            return self.norm(self.project(F.silu(self.depthwise(F.silu(self.expand(x))))))

    def convolutions():
        return nn.Sequential(Block(), Block()), torch.ones(1, 8, 16, 16)

    class Attention(nn.Module):
        def __init__(self, fused):
            super().__init__()
            self.fused = fused
            self.inside = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
            self.outside = nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = (part(x).view(1, 8, 2, 8).transpose(1, 2) for part in self.inside)
            if self.fused:
                mixed = F.scaled_dot_product_attention(q, k, v)
            else:
                mixed = torch.softmax(q @ k.transpose(2, 3), dim=-1) @ v
            return self.outside(mixed.transpose(1, 2).reshape(1, 8, 16))

    class Layers(nn.Module):
        def __init__(self, fused):
            super().__init__()
            self.layers = nn.Sequential(Attention(fused), Attention(fused))

        def forward(self, x):
            return self.layers(x)

    def fused():
        return Layers(True), torch.ones(1, 8, 16)

    def eager():
        return Layers(False), torch.ones(1, 8, 16)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Linear(4, 4)

        def forward(self, x):
            return self.shared(torch.relu(self.shared(x)))

    def twice():
        return Twice(), torch.ones(3, 4)

    class Uncertain(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(4, 8, 3, padding=1)
            self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

        def forward(self, x):
            return self.up(self.first(x))

    def uncertain():
        return Uncertain(), torch.ones(1, 4, 6, 6)
"""


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(textwrap.dedent(NETS), encoding="utf-8")
    return path


def _names(nets, function, layout="NHWC"):
    frontend = make_frontend(TorchOptions(source=f"{nets}:{function}", layout=layout))
    return [task.name for task in frontend.tasks("llvm")]


@pytest.mark.parametrize("layout", ["NHWC", full("NCHW")])
def test_convolutions_have_their_module_and_sizes(nets, layout):
    assert _names(nets, "convolutions", layout) == [
        "0.expand 8x16 1x1 @16x16",
        "0.depthwise 16x16 3x3 @8x8",
        "0.project 16x8 1x1 @8x8",
        "1.expand 8x16 1x1 @8x8",
        "1.depthwise 16x16 3x3 @4x4",
        "1.project 16x8 1x1 @4x4",
    ]


@pytest.mark.parametrize("form", ["fused", full("eager")])
def test_attention_has_the_module_that_computes_it(nets, form):
    assert _names(nets, form) == [
        "layers.0.inside.0+1+2 16x48 @8",
        "layers.0 2x8 @8x8",
        "layers.0.outside 16x16 @8",
    ]


def test_a_module_that_is_called_twice_is_numbered(nets):
    assert _names(nets, "twice") == ["shared 4x4 @3", "shared 4x4 @3 (2)"]


def test_what_passes_made_another_operator_of_has_no_wrong_owner(nets):
    first, up = _names(nets, "uncertain")
    assert first == "first 4x8 3x3 @6x6"
    assert up.startswith("conv2d_1 8x")


def test_nodes_of_an_onnx_file(tmp_path):
    text = """(float[3, 4] x) => (float[3, 4] y) {
        ["/body/MatMul"] h = MatMul(x, w)
        y = MatMul(h, v)
    }"""
    weights = {"w": np.ones((4, 5), np.float32), "v": np.ones((5, 4), np.float32)}
    path = onnx_file(tmp_path / "net.onnx", text, **weights)
    tasks = make_frontend(OnnxOptions(source=str(path))).tasks("llvm")
    assert [task.name for task in tasks] == ["/body/MatMul 4x5 @3", "dense_1 5x4 @3"]


@pytest.mark.full
def test_what_torch_exports_to_onnx_keeps_the_names_of_modules(nets, tmp_path, capfd):
    pytest.importorskip("onnxscript")
    network, example = named_object(f"{nets}:convolutions", "test")()
    file = tmp_path / "net.onnx"
    torch.onnx.export(network.eval(), (example,), file, dynamo=True)
    names = []
    for model in (f"{{torch: '{nets}:convolutions'}}", f"{{onnx: {file}}}"):
        (tmp_path / "p.yaml").write_text(f"model: {model}\ntarget: native\n")
        capfd.readouterr()
        assert command_line(["run", str(tmp_path / "p.yaml"), "--dry-run", "--json"]) == 0
        tasks = json.loads(capfd.readouterr().out)["tasks"]
        names.append([task["task"]["name"] for task in tasks])
    assert names[0] == names[1]
    assert names[1][0] == "0.expand 8x16 1x1 @16x16"


def test_a_profile_has_the_names_of_tasks():
    task = "layers.0 2x8 @8x8"
    assert symbol_of(task) == f"tuned_{identifier(task)}" == "tuned_layers_0_2x8_8x8"
    calls = [(symbol_of(task), 2.0), ("softmax", 1.0), (AROUND, 0.5)]
    rows = summed([calls], {symbol_of(task): task})
    assert [(row.name, row.tuned) for row in rows] == [
        (task, True),
        ("softmax", False),
        (AROUND, False),
    ]
