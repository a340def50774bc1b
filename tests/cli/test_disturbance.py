"""A run says at its end what disturbed its timing, and warns where that was much."""

import json

import pytest
from chameleon_core.plugin_api import Disturbance
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


@pytest.mark.parametrize("noisy", [False, True])
def test_a_noisy_place_is_a_warning_and_a_quiet_one_a_line_of_the_result(ran, noisy):
    disturbance = SHARED if noisy else QUIET
    done, as_json = ran(disturbance), ran(disturbance, "--json")
    line = f"{disturbance.summary}\n"
    assert done.out.count(line) == done.out.endswith(line) == (not noisy)
    assert (disturbance.summary in done.out) == (not noisy)
    for printed in (done, as_json):
        assert (disturbance.summary in printed.err) == noisy
        assert printed.err.count(line) == printed.err.endswith(line) == noisy
    figures = json.loads(as_json.out)["disturbance"]
    expected = (0.3, 0.6, True) if noisy else (0.01, 0.9, False)
    assert (figures["others"], figures["trust"], figures["disturbed"]) == expected


def test_speeds_of_several_processes_are_one_line():
    first = Disturbance(
        speeds={"fma": {"260": 70, "270": 10, "130": 10}},
        usual_speeds={"fma": 2.6e11},
        timed_again=2,
    )
    second = Disturbance(
        speeds={"fma": {"130": 10}, "tiles": {"4800": 5}},
        usual_speeds={"fma": 1.3e11},
        timed_again=1,
    )
    both = Disturbance.from_json(json.loads(json.dumps((first + second).to_json())))
    assert both.speeds == {"fma": {"260": 70, "270": 10, "130": 20}, "tiles": {"4800": 5}}
    assert both.usual_speeds == {"fma": 2.6e11}
    line = "Clock: usual 260 GFLOP/s (fma); 20% of the timings slower, most at 130; 3 timed again."
    assert both.clock == line
    assert line in both.summary
    assert not both.disturbed
    faster = Disturbance(speeds={"fma": {"130": 3, "260": 1}}, usual_speeds={"fma": 1.3e11})
    assert faster.clock == "Clock: usual 130 GFLOP/s (fma); 25% of the timings faster, most at 260."
    assert Disturbance.from_json({"pairs": 3, "kept": 3}).clock == ""  # of an older version
