"""Budgets, patience, and generators that depend on their names alone."""

from __future__ import annotations

import pytest
from chameleon_core.loop.budget import Allowance, Spent
from chameleon_core.loop.round.stages import generator
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.pipeline.schema import Budget, Scope

ONE, TWO = Spent(measured=6, seconds=30.0), Spent(measured=3, seconds=40.0)


@pytest.mark.parametrize(("scope", "left"), [(Scope.TASK, 4), (Scope.NETWORK, 1)])
def test_measurements_left(scope, left):
    allowance = Allowance(budget=Budget(measurements=10, scope=scope))
    assert allowance.measurements_left(ONE, [ONE, TWO]) == left


def test_a_smaller_budget_than_what_is_spent_leaves_nothing():
    assert Allowance(budget=Budget(measurements=2)).measurements_left(ONE, [ONE]) == 0


@pytest.mark.parametrize(("scope", "up"), [(Scope.TASK, False), (Scope.NETWORK, True)])
def test_wall_time(scope, up):
    allowance = Allowance(budget=Budget(wall_time=50.0, scope=scope))
    assert allowance.time_is_up(ONE, [ONE, TWO]) is up


def test_no_wall_time_is_never_up():
    assert not Allowance(budget=Budget()).time_is_up(ONE, [ONE])


def _costs(*costs):
    return [
        Measurement(config=(i,), seconds=(cost,))
        if cost
        else Measurement(config=(i,), failure=FailureKind.CRASH)
        for i, cost in enumerate(costs)
    ]


@pytest.mark.parametrize(
    ("costs", "over"),
    [
        ((3, 1, 2), False),
        ((3, 1, 2, 2, 2), True),
        ((1, 1, 1, 1), True),
        ((0, 0, 0, 0), True),
        ((0, 0, 0, 1), False),
        # Less than timing varies by, and what such gains add up to.
        ((1, 0.997, 0.995, 0.992), True),
        ((1, 0.994, 0.988, 0.985), False),
    ],
)
def test_patience(costs, over):
    allowance = Allowance(budget=Budget(patience=3))
    assert allowance.out_of_patience(_costs(*costs)) is over


def test_generators_depend_on_all_of_their_names():
    draws = {
        names: generator(seed, *names).integers(1 << 60)
        for seed, names in [(0, ("a", "b")), (0, ("ab", "")), (0, ("a", "c")), (0, ("a",))]
    }
    assert len(set(draws.values())) == 4
    assert generator(0, "a", "b").integers(1 << 60) == draws["a", "b"]
    assert generator(1, "a", "b").integers(1 << 60) != draws["a", "b"]


@pytest.mark.parametrize(
    ("seconds", "enough"),
    [((0.25, 0.5), True), ((0.25, 0.75), False), ((0.25, float("inf")), False)],
)
def test_target_latency(seconds, enough):
    assert Allowance(budget=Budget(latency=0.75)).fast_enough(seconds) is enough
    assert not Allowance(budget=Budget()).fast_enough(seconds)
