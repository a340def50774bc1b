"""Turns of networks: what is absurd is measured again, and first runs do not count."""

import math

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core._network_result import NetworkResult
from chameleon_core.plugin_api import ComparisonPlan
from chameleon_networks._comparison.baselines import _interval
from chameleon_networks._evaluation import latency
from chameleon_networks._evaluation.latency import (
    LEAST_ROUNDS,
    MOST_ATTEMPTS,
    ROUNDS,
    median_seconds,
    medians_of,
    time_in_turns,
)
from chameleon_networks._evaluation.messages import write_arrays
from chameleon_networks._evaluation.worker import Server


class Scripted:
    """A process whose turns take what a script says, and then always the same."""

    def __init__(self, name, *script, then, is_precompiled=False):
        self.name = name
        self.is_precompiled = is_precompiled
        self.turns = 0
        self._script, self._then = list(script), then

    def seconds(self, inputs, *, about):
        self.turns += 1
        took = self._script.pop(0) if self._script else self._then
        if took < 0:
            raise ChameleonError("it died")
        return [took]

    def pause(self):
        pass


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No waiting for cores."""

    class Watch:
        def __init__(self, cores): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def wait(self): ...
        def cores_are_separate(self):
            return True

    monkeypatch.setattr(latency, "CoreWatch", Watch)


def _medians(*processes):
    return median_seconds(processes, [], threads=1)


def test_a_network_that_is_slow_at_first_is_not_given_up():
    compiled = Scripted("torch.compile", 4.0, 4.1, then=0.013)
    untuned = Scripted("untuned", then=4.0)
    medians = _medians(Scripted("network", then=0.01), compiled, untuned)
    # Some slow turns alike are a slow network's; nobody waits fifteen times for one.
    assert medians == {"network": 0.01, "torch.compile": 0.013, "untuned": 4.0}
    assert (compiled.turns, untuned.turns) == (ROUNDS, LEAST_ROUNDS + 1)


def test_one_that_was_given_up_has_another_turn_at_the_end():
    compiled = Scripted("torch.compile", *([4.0] * LEAST_ROUNDS), then=0.013)
    medians = _medians(Scripted("network", then=0.01), compiled)
    assert medians == {"network": 0.01, "torch.compile": 0.013}
    assert compiled.turns == LEAST_ROUNDS + 1 + ROUNDS


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(("seconds", "turns"), [(4.0, 1), (0.2, LEAST_ROUNDS)])
def test_what_is_compiled_ahead_and_far_behind_has_one_turn(seconds, turns, apart, monkeypatch):
    monkeypatch.setattr(latency.CoreWatch, "cores_are_separate", lambda _: apart)
    turns *= MOST_ATTEMPTS if turns > 1 and not apart else 1
    untuned = Scripted("untuned", then=seconds, is_precompiled=True)
    medians = _medians(Scripted("network", then=0.01, is_precompiled=True), untuned)
    assert medians == {"network": 0.01, "untuned": seconds}
    assert untuned.turns == turns


def test_turns_that_are_far_apart_are_measured_again():
    odd = Scripted("odd", *([4.0] * 8), *([0.013] * 7), then=0.012)
    assert _medians(Scripted("fast", then=1.0), odd) == {"fast": 1.0, "odd": 0.012}
    assert odd.turns == 2 * ROUNDS


@pytest.mark.parametrize(("seconds", "turns"), [(0.0, LEAST_ROUNDS), (math.inf, ROUNDS)])
def test_where_time_is_short_there_are_few_rounds(seconds, turns):
    steps = []
    plan = ComparisonPlan(seconds=seconds, tell=lambda *step: steps.append(step))
    first, second = Scripted("network", then=0.01), Scripted("other", then=0.02)
    medians = medians_of(time_in_turns([first, second], [], threads=1, plan=plan))
    assert medians == {"network": 0.01, "other": 0.02}
    assert (first.turns, second.turns) == (turns, turns)
    assert [done for _, done, _ in steps] == list(range(1, turns + 1))
    assert steps[0] == ("timed", 1, ROUNDS)
    assert steps[-1] == ("timed", turns, turns)


def test_one_that_fails_has_no_time():
    assert _medians(Scripted("network", then=0.01), Scripted("dead", 0.02, -1.0, then=0.02)) == {
        "network": 0.01,
        "dead": None,
    }


def test_what_a_network_compiles_in_its_first_run_does_not_count(tmp_path):
    write_arrays(tmp_path / "inputs.arrays", [np.zeros(1)])
    request = {"do": "time", "inputs": str(tmp_path / "inputs.arrays"), "seconds": 1e-9}
    ran = []

    def network(inputs):
        ran.append(inputs)
        return inputs

    server = Server()
    server._network, server._ran = network, True
    # It takes many times as long as it is timed for, so that it needs no warming up.
    assert len(server.answer(request)["seconds"]) == len(ran) == 1
    server._ran = False
    assert len(server.answer(request)["seconds"]) == 1
    assert len(ran) == 1 + 2


def test_times_taken_again_count_if_they_are_better():
    disturbed = [0.2, 0.2, *[64.0] * (ROUNDS - 2)]
    calm = Scripted("torch", *disturbed, then=0.2)
    busier = Scripted("torch.compile", *disturbed, then=90.0)
    medians = _medians(Scripted("network", then=0.1), calm, busier)
    assert medians["torch"] == 0.2
    assert medians["torch.compile"] == 64.0


def test_the_process_that_runs_networks_starts_without_rich(run_python):
    program = (
        "import sys; import chameleon_networks._evaluation.worker; print('rich' in sys.modules)"
    )
    assert run_python(program) == "False\n"


def test_ratios_have_intervals_over_the_turns():
    result = NetworkResult(latency_seconds=2.0, rivals={"torch": 4.0, "openvino": 3.0})
    turns = {"network": [2.0] * 9, "torch": [4.0] * 9, "openvino": [3.0] * 7 + [2.0] * 2}
    low, high = _interval(result, turns, "network")
    assert 1.0 <= low <= high == 1.5
    assert _interval(result, {**turns, "openvino": [3.0]}, "network") == (), "one turn has none"
    assert _interval(result, {**turns, "openvino": None}, "network") == ()
    assert _interval(NetworkResult(latency_seconds=2.0), turns, "network") == ()
