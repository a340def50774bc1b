"""A delivered operator: whatever its weights are packed as, the kernel computes the reference."""

import json

import numpy as np
import pytest
from chameleon_core._errors import ConfigError, TargetError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_core._run_view import RunView
from chameleon_core.plugin_api import Delivery, NoOptions
from chameleon_networks._artifact.load import load
from chameleon_networks._c_runtime.pack import pack_weights
from chameleon_networks._export.operators import deliver_operator
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec

CONVOLUTION = Conv2dSpec(
    input=[1, 16, 8, 9], filters=32, kernel=3, padding=1, layout="NHWC", bias=True
)


def _algorithm(values):
    return str(values.get("algorithm", "direct"))


@pytest.mark.parametrize(
    "spec",
    [
        CONVOLUTION,
        Conv2dSpec(input=[1, 16, 8, 8], filters=16, kernel=3, groups=8, activation="relu"),
        Conv2dSpec(input=[1, 16, 8, 8], filters=24, kernel=3, dtype="int8", layout="NHWC"),
        DenseSpec(input=[4, 32], units=48, bias=True, dtype="bfloat16"),
    ],
    ids=["blocks and a bias", "groups in one vector", "int8", "bfloat16"],
)
def test_weights_of_ones_own_are_packed(spec, deliver_one):
    own = deliver_one(spec, lambda values: _algorithm(values) == "direct")
    own.pack()
    assert own.error(load(own.folder)(*own.activations)) < own.operator.tolerance


def test_winograds_weights_are_transformed(deliver_one):
    own = deliver_one(CONVOLUTION, lambda values: _algorithm(values).startswith("winograd"))
    before = load(own.folder)(*own.activations)
    assert own.error(before) > own.operator.tolerance, "it has random weights"
    own.pack()
    assert own.error(load(own.folder)(*own.activations)) < own.operator.tolerance


def test_sketches_pack_too(deliver_one):
    own = deliver_one(
        DenseSpec(input=[4, 32], units=48), space=SketchSpace(SketchOptions(prune=False))
    )
    own.pack()
    assert own.error(load(own.folder)(*own.activations)) < own.operator.tolerance


def test_an_operator_without_weights_has_nothing_to_pack(deliver_one):
    own = deliver_one(BatchMatmulSpec(a=[2, 4, 16], b=[2, 16, 24]))
    assert not (own.folder / "pack.py").exists()
    assert own.error(load(own.folder)(*own.activations)) < own.operator.tolerance


ALONE = """
import sys
import numpy as np
sys.path.insert(0, ".")
from pack import pack_weights
assert not any(name == "tvm" or name.startswith("chameleon") for name in sys.modules)
pack_weights(np.load("w.npy"), np.load("b.npy")).tofile("weights.bin")
from load import load
np.save("out.npy", load()(np.load("x.npy")))
print([name for name in sys.modules if name.startswith("chameleon")])
"""


def test_numpy_packs_and_tvm_runs_without_this_package(deliver_one, run_python):
    own = deliver_one(DenseSpec(input=[4, 32], units=48, bias=True))
    data, weights, bias = own.inputs
    for name, array in (("x", data), ("w", weights), ("b", bias)):
        np.save(own.folder / f"{name}.npy", array)
    assert run_python(ALONE, cwd=own.folder).strip() == "[]"
    assert own.error(np.load(own.folder / "out.npy")) < own.operator.tolerance
    manifest = json.loads((own.folder / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["inputs"]] == ["data"]
    assert manifest["threads"] == 2


def test_wrong_constants_are_refused(deliver_one):
    own = deliver_one(DenseSpec(input=[4, 32], units=48, bias=True))
    data, weights, bias = own.inputs
    names = "the operator's constants are weights, bias"
    with pytest.raises(ValueError, match=f"{names}, not 1 arrays"):
        pack_weights(weights, folder=own.folder)
    with pytest.raises(ValueError, match=r"bias must have shape \[48\]"):
        pack_weights(weights, data, folder=own.folder)
    assert len(pack_weights(weights, bias, folder=own.folder)) > weights.nbytes


def test_packing_that_depends_on_values_is_refused(deliver_one, monkeypatch, tmp_path):
    own = deliver_one(DenseSpec(input=[4, 32], units=48))
    real = Template.program

    def sorted_first(self, values, operator, inputs):
        weights = inputs[1][np.argsort(np.asarray(inputs[1])[:, 0])]
        return real(self, values, operator, [inputs[0], weights, *inputs[2:]])

    monkeypatch.setattr(Template, "program", sorted_first)
    with pytest.raises(ConfigError, match="'one' are packed cannot be written down") as caught:
        deliver_operator(own.winner, AutoSpace(AutoOptions()), tmp_path / "two", 1)
    assert "tvmscript" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("target", "said"),
    [("nvidia/nvidia-a100", "is cuda"), ("llvm -mtriple=riscv64-linux-gnu", "is riscv64")],
)
def test_what_runs_elsewhere_is_refused(target, said, tmp_path):
    resolved = TVMTargets(NoOptions()).resolve(target)
    task = DenseSpec(input=[4, 32], units=48).task("one", resolved)
    winner = Delivery.Winner(task=task, config=(0,), seconds=None)
    with pytest.raises(TargetError, match=said):
        deliver_operator(winner, AutoSpace(AutoOptions()), tmp_path / "one", 1)
    assert not (tmp_path / "one").exists()


@pytest.mark.full
def test_a_run_without_measurements_is_exported(tmp_path):
    operator = {"dense": {"input": [8, 16], "units": 16, "name": "product"}}
    document = {"model": {"operators": [operator]}, "baselines": []}
    document |= {"budget": {"measurements": 0}, "output": str(tmp_path / "run")}
    (operator,) = run_pipeline(from_dict(document)).operators
    assert operator.measurements == 0
    assert operator.tuned_seconds > 0
    with RunView(tmp_path / "run") as view:
        (winner,) = view.winners
    assert (winner.config, winner.seconds) == (operator.config, operator.tuned_seconds)
