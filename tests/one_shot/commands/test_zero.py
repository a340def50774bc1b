"""``preset: one-shot`` with any example and any CPU: a limit that somebody sets holds."""

import json
import shutil
from pathlib import Path

import pytest
from chameleon_cli._main import run as chameleon
from chameleon_core._errors import ExitCode
from chameleon_core._pipeline.load import load_pipeline

pytest.importorskip("chameleon_tvm")

EXAMPLES = Path(__file__).parents[3] / "examples"

PIPELINE = """
preset: one-shot
model:
  operators:
    - dense: {name: usual, input: [64, 128], units: 96}
    - dense: {name: unlike, input: [1, 65536], units: 3}
baselines: []
budget: {measurements: 0}
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("native", None),
        ("llvm -mcpu=icelake-server -num-cores=2", None),  # between the CPUs of the training
        ("llvm -mcpu=haswell -num-cores=2", "nearest_device_assumed"),
        (
            "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=2",
            "nearest_device_assumed",
        ),
    ],
)
def test_nothing_is_measured_whatever_the_predictor_knows(tmp_path, capfd, target, told):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    command = ["run", str(tmp_path / "p.yaml"), "--set", f"output={tmp_path / 'run'}"]
    code = chameleon([*command, "--set", f"target={target}"])
    said = capfd.readouterr().err
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert [operator["measurements"] for operator in best["operators"]] == [0, 0], said
    assert "0 measurements" in said
    # The comparison times what is predicted, if this machine can run it.
    timed = [operator["tuned_seconds"] is not None for operator in best["operators"]]
    assert code == (ExitCode.OK if any(timed) else ExitCode.NO_VALID_RESULT)
    assert target != "native" or all(timed)
    if told is not None:
        assert said.count(told) == 1, said


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The examples, with the file that one of them writes."""
    folder = tmp_path_factory.mktemp("examples") / "all"
    shutil.copytree(EXAMPLES, folder)
    (folder / "net.onnx").touch()
    return folder


@pytest.mark.parametrize("name", sorted(file.name for file in EXAMPLES.glob("*.yaml")))
def test_every_example_takes_the_preset_and_a_budget_of_nothing(examples, name):
    def budget(*settings):
        return load_pipeline(examples / name, settings).budget

    named, preset = budget(), budget("preset=one-shot")
    assert (preset.measurements, preset.scope) == (named.measurements, named.scope)
    assert preset.unpredicted is None  # the file's own limit holds for all tasks
    nothing = "budget.measurements=0"
    for scope in ("task", "network"):
        zero = budget("preset=one-shot", nothing, f"budget.scope={scope}")
        assert (zero.measurements, zero.unpredicted, zero.scope) == (0, None, scope)
    assert budget(nothing).measurements == 0
