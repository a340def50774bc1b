"""A trained network keeps its accuracy on data that neither calibration nor the choice has seen."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chameleon_cli.main import run as command_line
from chameleon_tvm.graph.load import load

pytest.importorskip("torch")

MAX_DROP = 0.005


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, somewhere else."""
    made = tmp_path_factory.mktemp("digits")
    for name in ("digits.py", "digits.yaml"):
        shutil.copy(Path(__file__).parents[3] / "examples" / name, made)
    return made


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("digits_of_the_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_digits_are_read_as_well_as_in_float32(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(folder / "digits.yaml"), "--json", "--output", str(folder / "run")]
    small = ["budget.measurements=10", "model.torch.compare=false", "budget.batch_size=2"]
    options = [part for one in small for part in ("--set", one)]
    assert command_line([*words, *options]) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    network = result["network"]
    assert network["precision_summary"]
    assert [row["delivered"] for row in network["front"]].count(True) == 1
    names = [one["name"] for one in result["operators"]]
    assert sum(name.endswith(" int8") for name in names) * 2 == len(names)

    digits = _module(folder / "digits.py")
    module, _ = digits.make()
    torch = pytest.importorskip("torch")
    unseen = digits.HELD_OUT // 2, digits.HELD_OUT
    before = digits.share_right(lambda one: module(torch.from_numpy(one)).detach().numpy(), *unseen)
    assert before > 0.9, "it has learnt something that could be lost"
    delivered = load(folder / "run" / "network")
    assert digits.share_right(delivered, *unseen) >= before - MAX_DROP

    words = ["compile", str(folder / "run"), "--max-error", "1e-9", "--json"]
    assert command_line(words) == 0
    exact = json.loads(capfd.readouterr().out.splitlines()[-1])["network"]
    assert "float32" in exact["precision_summary"]
    assert exact["max_relative_error"] < 1e-4
    pictures, _ = digits.images()
    given = pictures[: digits.BATCH]
    found = load(folder / "run" / "network")(given)
    wanted = module(torch.from_numpy(given)).detach().numpy()
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()
