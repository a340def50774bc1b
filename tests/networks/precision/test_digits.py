"""A trained network keeps its accuracy on data that neither calibration nor the choice has seen."""

import importlib.util
import shutil
from pathlib import Path

import pytest
import torch
from chameleon_core._pipeline.load import load_pipeline
from chameleon_networks._artifact.load import load
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._precision.section import Precision


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example, somewhere else."""
    copy = tmp_path_factory.mktemp("digits")
    for name in ("digits.py", "digits.yaml"):
        shutil.copy(Path(__file__).parents[3] / "examples" / name, copy)
    return copy


def _module(file):
    spec = importlib.util.spec_from_file_location("digits_of_the_test", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_digits_are_read_as_well_as_in_float32(folder, trials, delivered_in):
    digits = _module(folder / "digits.py")
    module, _ = digits.make()
    precision = load_pipeline(folder / "digits.yaml").sections["precision"]
    assert isinstance(precision, Precision)
    assert precision.max_drop == 0.005
    frontend = make_frontend(TorchOptions(source=f"{folder}/digits.py:make", compare=False))
    frontend.compute_in(precision)
    settled = frontend.decide(trials)
    result, network = delivered_in(frontend.network, settled, folder / "network", precision)
    assert result.precision.startswith("int8"), result.precision_summary
    assert "a drop of 0.005" in result.precision_summary

    def in_float32(images):
        return module(torch.from_numpy(images)).detach().numpy()

    unseen = digits.HELD_OUT // 2, digits.HELD_OUT
    before = digits.share_right(in_float32, *unseen)
    assert before > 0.9, "it has learnt something that could be lost"
    assert digits.share_right(load(network), *unseen) >= before - precision.max_drop
