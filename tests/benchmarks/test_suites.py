"""The suites of benchmarks/suites can be read with what is installed here."""

import json
from pathlib import Path

import pytest
from chameleon_bench._suites.load import load_suite

SUITES = Path(__file__).parents[2] / "benchmarks" / "suites"
TABLES = (
    "convolution_A100",
    "convolution_A4000",
    "convolution_W6600",
    "convolution_RTX_2080_Ti",
    "gemm_RTX_2080_Ti",
)


@pytest.fixture
def data(tmp_path):
    for name in TABLES:
        (tmp_path / f"{name}.json.gz").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "pipelines"),
    [
        ("tables", {"default", "autotvm", "local", "genetic", "random", "ppo"}),
        ("paper-ablation", {"SA", "AE", "SA+AS", "AE+AS"}),
        ("diversity", {"SA+diversity", "SA+AS", "AE+diversity", "AE+AS"}),
        ("adaptive-sampling", {"greedy", "greedy-16", "literal", "nearest", "best"}),
    ],
)
def test_a_suite_of_tables(name, pipelines, data):
    suite = load_suite(SUITES / f"{name}.yaml", [f"data={data}"])
    assert set(suite.pipelines) == pipelines
    assert suite.tasks == list(TABLES)
    assert len(suite.seeds) == 50
    assert not any(pairing.measures_hardware for pairing in suite.pairings)
    assert {pairing.document["runner"]["name"] for pairing in suite.pairings} == {"replay"}


def test_the_ablation_differs_in_explorer_sampler_and_synthesizer_alone(data):
    suite = load_suite(SUITES / "paper-ablation.yaml", [f"data={data}"])
    varied = {"explorer", "sampler", "synthesizer", "model"}
    rest = {
        json.dumps({k: v for k, v in pairing.document.items() if k not in varied}, sort_keys=True)
        for pairing in suite.pairings
    }
    assert len(rest) == 1


def test_the_layers_of_table_5(monkeypatch):
    suite = load_suite(SUITES / "layers-cpu.yaml")
    assert suite.tasks == [f"L{number}" for number in range(1, 9)]
    assert suite.pipelines == ["default", "autotvm", "published", "metaschedule"]
    assert all(pairing.measures_hardware for pairing in suite.pairings)
    assert {pairing.document["space"]["name"] for pairing in suite.pairings} == {"sketch"}
