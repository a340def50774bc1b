"""Kernels that nobody measured make room for others where the network fails with them."""

import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ChameleonError, InvalidConfigurationError
from chameleon_core._loop.end.delivery import guessed, guesses_of
from chameleon_core._network_result import NetworkResult
from chameleon_core._task import Task
from chameleon_core.plugin_api import Choice, Delivery, DesignSpace, SpaceProvider
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._delivery.deliver import TURNS, repaired
from chameleon_networks._evaluation.verify import OutputCheck
from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._words import one_line
from hypothesis import given
from hypothesis import strategies as st


def _winner(name, *guesses, seconds=None):
    task = Task(name=name, operator="dense", arguments={"name": name}, target="here", flop=1.0)
    config, *rest = ((index,) for index in guesses)
    return Delivery.Winner(task=task, config=config, seconds=seconds, guesses=tuple(rest))


class Builder(TVMBuilder):
    """A builder of tasks whose rounding errors grow below the configuration of a number."""

    def __init__(self, rounded):
        self._rounded = rounded

    def rounding_rank(self, config):
        return max(0, self._rounded - config[0])

    def program(self, config):
        raise NotImplementedError


class Space(SpaceProvider):
    """A space with some first guesses for each task."""

    def __init__(self, rounded=0, guesses=(), cost=None):
        self._rounded, self._guesses, self._cost = rounded, guesses, cost

    def design_space(self, task):
        knobs = [Choice(name="number", options=tuple(range(9)))]
        rows = np.array(self._guesses, np.int32).reshape(-1, 1)
        return DesignSpace(knobs, first_guesses=rows, guessed_cost=self._cost)

    def builder(self, task, *, threads):
        return Builder(self._rounded)


class DeliverySteps:
    """A delivery of kernels of which some spoil the network."""

    def __init__(self, winners, bad, space=None):
        kernels = {winner.task.key: winner for winner in winners}
        self.kernels = Kernels(kernels, space or Space(), "here")
        self.replaced: dict[str, str] = {}
        self.compiled = 0
        self._bad = bad

    def tried(self, kernels, name):
        self.compiled += 1
        winners = kernels.winners.values()
        wrong = any((winner.task.name, winner.config[0]) in self._bad for winner in winners)
        problem = "it is off" if wrong else None
        return Path(name), OutputCheck(max_relative_error=None, problem=problem)

    def repaired(self):
        staged, verdict = self.tried(self.kernels, "network")
        return repaired(self, staged, verdict)[1]

    @property
    def left(self):
        return {winner.task.name: winner.config[0] for winner in self.kernels.winners.values()}


def test_nothing_is_touched_where_the_network_is_right():
    steps = DeliverySteps([_winner("a", 0, 1), _winner("b", 0)], set())
    assert steps.repaired().problem is None
    assert (steps.compiled, steps.left, steps.replaced) == (1, {"a": 0, "b": 0}, {})


def test_the_guess_to_blame_makes_room_for_the_next_and_then_for_the_default_schedule():
    steps = DeliverySteps([_winner("a", 0, 1, 2), _winner("b", 0), _winner("c", 0)], {("a", 0)})
    assert steps.repaired().problem is None
    assert steps.left == {"a": 1, "b": 0, "c": 0}
    steps = DeliverySteps([_winner("a", 0, 1), _winner("b", 0)], {("a", 0), ("a", 1)})
    assert steps.repaired().problem is None
    assert steps.left == {"b": 0}
    assert list(steps.replaced.values()) == ["with the guess before, it is off"]


def test_measured_kernels_are_never_replaced():
    steps = DeliverySteps([_winner("a", 0, seconds=1.0), _winner("b", 0, 1)], {("a", 0)})
    assert steps.repaired().problem == "it is off"
    assert steps.left == {"a": 0, "b": 0}


def test_an_algorithm_with_large_rounding_errors_makes_room_for_one_without():
    guess = _winner("a", 0, 1, 2, 3)
    bad = {("a", 0), ("a", 1)}
    steps = DeliverySteps([guess, _winner("b", 5, seconds=1.0)], bad, Space(rounded=2))
    assert steps.repaired().problem is None
    assert steps.left == {"a": 2, "b": 5}


def test_a_measured_kernel_with_large_rounding_errors_makes_room_for_the_fastest_without():
    slower = [_winner("a", number, seconds=number + 1.0) for number in (1, 4)]
    measured = attrs.evolve(_winner("a", 0, seconds=1.0), others=tuple(slower))
    steps = DeliverySteps([measured], {("a", 0), ("a", 1)}, Space(rounded=2))
    assert steps.repaired().problem is None
    assert steps.left == {"a": 4}
    assert list(steps.replaced.values()) == ["with the fastest kernel, it is off"]
    alone = DeliverySteps([_winner("a", 0, seconds=1.0)], {("a", 0)}, Space(2, [1, 3]))
    assert alone.repaired().problem is None
    assert alone.left == {"a": 1}


def test_of_several_guesses_the_one_of_the_least_estimated_cost_comes_first():
    costs = {0: 1.0, 2: 3.0, 3: 2.0, 4: 4.0}
    space = Space(2, [2, 3, 4], cost=lambda v: np.array([costs[number] for number in v["number"]]))
    steps = DeliverySteps([_winner("a", 0)], {("a", 0), ("a", 3)}, space)
    assert steps.repaired().problem is None
    assert steps.left == {"a": 2}


def test_errors_that_add_up_over_many_layers_leave_guesses_and_no_default_schedules():
    count = TURNS + 5
    winners = [_winner(f"task{number}", 0, 1, 2) for number in range(count)]
    bad = {(f"task{number}", guess) for number in range(count) for guess in range(2)}
    steps = DeliverySteps(winners, bad, Space(rounded=2))
    assert steps.repaired().problem is None
    assert steps.left == {f"task{number}": 2 for number in range(count)}
    assert steps.compiled <= 3 + 2 + 2 * count.bit_length(), "there was a second search"


def test_a_record_of_another_run_is_as_little_trusted_as_a_guess():
    recorded = attrs.evolve(_winner("a", 0, 1, seconds=1.0), recorded=True)
    steps = DeliverySteps([recorded, _winner("b", 0, seconds=1.0)], {("a", 0)})
    assert steps.repaired().problem is None
    assert steps.left == {"a": 1, "b": 0}
    assert not steps.kernels.winners[recorded.task.key].measured, "its time was the other one's"
    assert list(steps.replaced.values()) == ["with the record of another run, it is off"]


@given(st.integers(1, 20), st.data())
def test_a_network_whose_measured_kernels_are_right_is_always_delivered(count, data):
    names = [f"task{number}" for number in range(count)]
    every = [(name, guess) for name in names for guess in range(3)]
    bad = data.draw(st.sets(st.sampled_from(every)))
    steps = DeliverySteps([_winner(name, 0, 1, 2) for name in names], bad)
    assert steps.repaired().problem is None
    assert steps.compiled <= 2 + TURNS * (2 + 2 * count.bit_length())


def test_a_guess_that_gives_no_program_makes_room_for_the_next():
    class Unbuilt(Builder):
        def program(self, config):
            if config == (0,):
                raise InvalidConfigurationError("no such program")
            return "program"

    winner = _winner("a", 0, 1)
    key = winner.task.key
    kernels = Kernels({key: winner}, Space(), "here")
    builder = Unbuilt(0)
    assert kernels._program(key, builder) == "program"
    assert kernels.winners[key].config == (1,)
    last = Kernels({key: _winner("a", 0)}, Space(), "here")
    assert last._program(key, builder) is None
    assert last.winners == {}
    measured = Kernels({key: _winner("a", 0, seconds=1.0)}, None, "here")
    with pytest.raises(InvalidConfigurationError, match="no such program"):
        measured._program(key, builder)


def test_what_a_library_says_is_cut_to_one_line():
    assert one_line(ValueError("\n  first\nsecond")) == "first"
    assert len(one_line(ValueError("x" * 1000))) < 250
    died = ChameleonError("the process of torch ended with SIGSEGV", hint="Its last words: oh no")
    assert one_line(died) == "Its last words: oh no"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.long
def test_a_wrong_guess_does_not_keep_the_network_from_being_delivered(
    frontend, delivery_of, doubling
):
    source = frontend("resnet_small")
    delivery = delivery_of(source)
    winners = []
    for winner in delivery.winners:
        guesses = guesses_of(delivery.space.design_space(winner.task))
        winners.append(guessed(winner.task, guesses, predicted=winner is delivery.winners[5]))
    wrong, reached, predicted = winners[3], winners[6], winners[5]

    def is_wrong(kernels, fusion):
        task = kernels.task_of(fusion)
        return task.name == wrong.task.name and kernels.winners[task.key].config == wrong.config

    doubling(is_wrong)
    measured = [wrong, reached, predicted]
    result = source.deliver(attrs.evolve(delivery, winners=measured))
    assert result.failure is None
    unmeasured = {operator.name: operator for operator in result.unmeasured}
    assert unmeasured.keys() == {task.name for task in source.named_tasks(delivery.target)}
    assert unmeasured[wrong.task.name].kernel == "next guess"
    assert "its outputs are off" in unmeasured[wrong.task.name].because
    assert unmeasured[reached.task.name] == NetworkResult.Unmeasured(
        name=reached.task.name, kernel="first guess", because="it was not reached"
    )
    assert unmeasured[predicted.task.name].kernel == "configuration predicted to be best"
    others = {
        operator.kernel
        for name, operator in unmeasured.items()
        if name not in {winner.task.name for winner in measured}
    }
    assert others == {"default schedule"}
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    assert manifest["unmeasured"] == result.to_json()["unmeasured"]
    tasks = {task["name"]: task["measured"] for task in manifest["tasks"]}
    assert tasks == dict.fromkeys((winner.task.name for winner in measured), False)
