"""A run says at its end what disturbed its timing, and warns where that was much."""

import json

import pytest
from chameleon_core.stages import Disturbance
from ruamel.yaml import YAML
from synthetic import SyntheticRunner, synthetic_document, synthetic_registry

QUIET = Disturbance(core_seconds=100.0, others_seconds=1.0, pairs=10, kept=9)
SHARED = Disturbance(core_seconds=100.0, others_seconds=30.0, pairs=10, kept=6)


@pytest.fixture
def ran(chameleon, install, monkeypatch, tmp_path):
    """Runs beside somebody; what the command printed."""

    def run(disturbance, *words):
        install(synthetic_registry())
        monkeypatch.setattr(SyntheticRunner, "disturbance", lambda _: disturbance)
        YAML().dump(synthetic_document(tmp_path / "run"), tmp_path / "pipeline.yaml")
        return chameleon("run", "pipeline.yaml", *words)

    return run


def test_a_quiet_place_is_a_line_of_the_result(ran):
    done = ran(QUIET)
    assert done.out.splitlines()[-1] == QUIET.summary
    assert QUIET.summary not in done.err


def test_a_noisy_place_is_a_warning(ran):
    done = ran(SHARED)
    assert done.err.splitlines()[-1] == SHARED.summary
    assert SHARED.summary not in done.out


def test_json_has_the_figures_and_the_warning_is_beside_it(ran):
    done = ran(SHARED, "--json")
    figures = json.loads(done.out)["disturbance"]
    assert (figures["others"], figures["trust"], figures["disturbed"]) == (0.3, 0.6, True)
    assert done.err.splitlines()[-1] == SHARED.summary


def test_json_of_a_quiet_place_comes_without_a_warning(ran):
    done = ran(QUIET, "--json")
    assert json.loads(done.out)["disturbance"]["others"] == 0.01
    assert QUIET.summary not in done.err
