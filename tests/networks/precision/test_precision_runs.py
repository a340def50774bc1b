"""``chameleon run`` with a precision, and another point of its front by ``chameleon compile``."""

import json

import pytest
from chameleon_cli._main import run as command_line
from chameleon_core.api import RecordStore
from synthetic import measurements_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("forked_networks")]

BOUND = 0.5
MEASUREMENTS = 5


def _pipeline(tiny, folder, **precision):
    file = folder / "p.yaml"
    pipeline = {
        "model": {"onnx": {"file": tiny.options.source, "compare": False, "check": False}},
        "target": "native",
        "runner": {"name": "local", "workers": 1},
        "baselines": [],
        "scheduler": {"name": "gradient", "window": 1},
        "budget": {"measurements": MEASUREMENTS, "batch_size": 2, "scope": "network"},
        "output": str(folder / "run"),
        **precision,
    }
    file.write_text(json.dumps(pipeline))
    return file


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """The folder of a finished run in int8 and its result."""
    folder = tmp_path_factory.mktemp("precision")
    file = _pipeline(tiny, folder, precision={"type": "int8", "max_error": BOUND})
    assert command_line(["run", str(file), "--json"]) == 0
    return folder / "run", json.loads((folder / "run" / "best.json").read_text())


def test_a_run_measures_alternatives_beside_the_networks_own_operators(run):
    _, result = run
    own = [row for row in result["operators"] if "alternative_of" not in row["task"]]
    others = [row for row in result["operators"] if "alternative_of" in row["task"]]
    assert [row["task"]["alternative_of"] for row in others] == [row["name"] for row in own]
    assert sum(row["measurements"] for row in own) == MEASUREMENTS
    assert 0 < sum(row["measurements"] for row in others) <= 0.6 * MEASUREMENTS


def test_the_result_says_which_types_there_were_and_what_was_chosen(run):
    folder, result = run
    network = result["network"]
    assert network["precision_summary"]
    assert [row["delivered"] for row in network["front"]].count(True) == 1
    assert network["max_relative_error"] <= BOUND
    manifest = json.loads((folder / "network" / "manifest.json").read_text())
    assert manifest["precision"]["precision_summary"] == network["precision_summary"]
    with RecordStore.of_run(folder) as store:
        assert store.fact("model")["types"]["types"] == ["int8"]


def test_another_bound_is_compiled_without_measuring(run, capfd):
    folder, _ = run
    before = measurements_in(folder)
    words = ["compile", str(folder), "--max-error", "1e-9", "-o", str(folder / "exact")]
    assert command_line(words) == 0
    printed = capfd.readouterr().out
    assert "precision: float32, since " in printed
    assert "operators in" in printed
    assert json.loads((folder / "exact" / "manifest.json").read_text())["precision"]["front"]
    assert measurements_in(folder) == before


def test_a_run_in_float32_has_no_front_to_choose_from(tiny, tmp_path, capfd):
    file = _pipeline(tiny, tmp_path)
    assert command_line(["validate", str(file), "--json"]) == 0
    assert "precision" not in json.loads(capfd.readouterr().out)["pipeline"]
    assert command_line(["validate", str(file), "--set", "precision=int8", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["pipeline"]["precision"] == {"type": "int8"}
