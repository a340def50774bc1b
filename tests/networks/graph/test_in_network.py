"""Kernels that are chosen by their times inside the network."""

import attrs
import pytest
from chameleon_core._network_result import NetworkResult
from chameleon_core._task import Task
from chameleon_core.plugin_api import Delivery
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._delivery import delivery_steps
from chameleon_networks._delivery.kernel_choice import choices, fastest, kernel_seconds_in_networks
from chameleon_networks._frontends.network import NetworkFrontend
from marks import full

pytestmark = pytest.mark.usefixtures("forked_networks")


def _winner(name, *alternatives):
    task = Task(name=name, operator="conv2d", arguments={"of": name}, target="t", flop=1.0)
    return Delivery.Winner(task=task, config=(0,), seconds=1.0, alternatives=alternatives)


def _kernels(*winners):
    space = None
    return Kernels({winner.task.key: winner for winner in winners}, space, "t")


class Process:
    """Says what each profile found, and that it was stopped in between."""

    def __init__(self, *profiles):
        self.profiles = list(profiles)
        self.paused = 0
        self.asked = 0

    def profile(self, _inputs, *, quantile):
        assert quantile < 0.5, "disturbances make kernels slower, never faster"
        seconds = self.profiles[self.asked % len(self.profiles)]
        self.asked += 1
        tuned = [
            NetworkResult.Kernel(name=n, tuned=True, calls=1, seconds=s) for n, s in seconds.items()
        ]
        return [*tuned, NetworkResult.Kernel(name="pool", tuned=False, calls=1, seconds=1e-9)]

    def pause(self):
        self.paused += 1


def test_each_choice_takes_the_next_alternatives_of_all_tasks():
    a, b, c = _winner("a", (1,), (2,)), _winner("b", (7,)), _winner("c")
    configs = [
        [winner.config for winner in chosen.winners.values()]
        for chosen in choices(_kernels(a, b, c))
    ]
    assert configs == [[(0,), (0,), (0,)], [(1,), (7,), (0,)], [(2,), (0,), (0,)]]


def test_the_fastest_in_the_network_is_taken_where_it_is_clearly_so():
    a, b, c = _winner("a", (1,), (2,)), _winner("b", (7,)), _winner("c", (8,))
    networks = (
        Process({"a": 1.0, "b": 1.0, "c": 1.0}),
        Process({"a": 0.9, "b": 0.999, "c": 2.0}),
        Process({"a": 0.8, "b": 1.0, "c": 1.0}),
    )
    times = kernel_seconds_in_networks(networks, [], threads=1)
    assert times[0] == {"a": 1.0, "b": 1.0, "c": 1.0}, "what is not tuned is nobody's choice"
    better = fastest([*choices(_kernels(a, b, c))], times)
    assert better == {a.task.key: (2,)}, "b's gain is noise, c's alternative slow"


def test_the_least_of_several_rounds_counts_and_nobody_runs_beside():
    first, second = Process({"a": 3.0}, {"a": 1.0}), Process({"a": 0.5}, {"a": 4.0})
    assert kernel_seconds_in_networks([first, second], [], threads=1) == [{"a": 1.0}, {"a": 0.5}]
    assert first.asked == second.asked > 1
    assert first.paused == second.paused == first.asked + 1


def test_a_task_without_a_kernel_in_the_network_stays_as_it_is():
    times = kernel_seconds_in_networks([Process({}), Process({})], [], threads=1)
    assert fastest([*choices(_kernels(_winner("a", (1,))))], times) == {}


@pytest.mark.parametrize("in_place", [full(True), False])
def test_a_network_is_delivered_with_what_was_tried(tiny, delivery_of, monkeypatch, in_place):
    monkeypatch.setattr(tiny, "options", attrs.evolve(tiny.options, in_place=in_place))
    delivery = delivery_of(NetworkFrontend(tiny))
    first = delivery.winners[0]
    delivery = attrs.evolve(
        delivery, winners=[attrs.evolve(first, alternatives=(first.config,)), *delivery.winners[1:]]
    )
    seen = []

    def fastest(variants, _seconds):
        seen.extend(variants)
        return {}

    monkeypatch.setattr(delivery_steps, "fastest", fastest)
    assert NetworkFrontend(tiny).deliver(delivery).failure is None
    assert len(seen) == (2 if in_place else 0)
