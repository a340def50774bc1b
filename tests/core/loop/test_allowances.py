"""Alternatives have a share of the budget of their own, and take nothing from the others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from chameleon_core.loop.budget import Allowances, Spent
from chameleon_core.pipeline.schema import Budget, Scope
from chameleon_core.task import Task


def _run(name, *, measured=0, seconds=0.0, of="", cost=1.0, recorded=0):
    task = Task(
        name=name, operator="x", arguments={"n": name}, target="t", flop=1.0, alternative_of=of
    )
    spent = Spent(measured=measured, seconds=seconds, recorded=recorded)
    return SimpleNamespace(task=task, spent=spent, tuner=SimpleNamespace(best_cost=cost))


def _allowances(runs, **budget):
    return Allowances(runs, Budget(**budget), seconds_before=0.0, spent=lambda run: run.spent)


@pytest.mark.parametrize("scope", Scope)
def test_without_alternatives_the_budget_is_what_it_was(scope):
    runs = [_run("a", measured=3), _run("b", measured=4)]
    made = _allowances(runs, measurements=10, wall_time=50.0, scope=scope)
    assert made.left(runs[0]) == (3 if scope is Scope.NETWORK else 7)
    assert made.total_measurements == (10 if scope is Scope.NETWORK else 20)
    assert made.most(runs[0]) == 10


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("types", [1, 2])
def test_alternatives_add_at_most_sixty_percent(scope, types):
    own = [_run(f"{place}") for place in range(5)]
    others = [
        _run(f"{one.task.name} {kind}", of=one.task.name) for one in own for kind in range(types)
    ]
    made = _allowances([*own, *others], measurements=100, wall_time=50.0, scope=scope)
    alone = _allowances(own, measurements=100, wall_time=50.0, scope=scope)
    assert made.total_measurements == pytest.approx(1.6 * alone.total_measurements, abs=types * 5)
    assert made.total_measurements <= 1.6 * alone.total_measurements
    assert made.seconds_left == pytest.approx(1.6 * alone.seconds_left)


def test_neither_group_spends_what_is_the_other_ones():
    own, other = _run("a", seconds=40.0), _run("a int8", measured=60, seconds=30.0, of="a")
    made = _allowances([own, other], measurements=100, wall_time=50.0, scope=Scope.NETWORK)
    assert (made.left(own), made.left(other)) == (100, 0)
    assert not made.time_is_up(own)
    assert made.time_is_up(other)


@pytest.mark.parametrize(("taken", "up"), [(18.0, False), (25.0, False), (26.0, True)])
def test_another_batch_may_not_take_alternatives_over_their_share_of_the_seconds(taken, up):
    # A batch of four takes a fifth of what these twenty have taken.
    own = [_run("a", measured=10, seconds=20.0), _run("b", measured=30, seconds=31.0)]
    others = [_run("a int8", measured=20, seconds=taken, of="a"), _run("b int8", of="b")]
    made = _allowances([*own, *others], measurements=100, scope=Scope.NETWORK)
    assert made.share_is_up(4) is up
    assert 1.2 * 25.0 <= 0.6 * 51.0 < 1.2 * 26.0


def test_alternatives_have_all_of_their_share_before_the_first_is_measured():
    assert not _allowances([_run("a"), _run("a int8", of="a")], measurements=9).share_is_up(8)


def test_the_smallest_budget_measures_one_alternative():
    own, other = _run("a"), _run("a int8", of="a")
    assert _allowances([own, other], measurements=1).left(other) == 1


def test_a_target_latency_is_reached_by_the_network_as_it_is():
    own, other = _run("a", cost=2.0), _run("a int8", of="a", cost=0.1)
    assert not _allowances([own, other], latency=1.0).fast_enough
    assert _allowances([own, other], latency=2.0).fast_enough


def test_a_task_says_what_it_is_an_alternative_of_and_others_say_nothing():
    own, other = _run("a").task, _run("a int8", of="a").task
    assert "alternative_of" not in own.to_json()
    assert [Task(**one.to_json()) for one in (own, other)] == [own, other]


def test_tasks_that_nothing_is_known_of_spend_an_allowance_of_their_own():
    known, unknown = _run("a", measured=3), _run("b", measured=3)
    other = _run("c", measured=0, of="b")
    for run, predicted in ((known, True), (unknown, False), (other, False)):
        run.tuner.predicted = predicted
    made = _allowances([known, unknown, other], measurements=4, unpredicted=10)
    assert [made.left(run) for run in (known, unknown)] == [1, 7]
    assert made.most(other) == 6
    assert made.total_measurements == 20


def test_records_count_for_their_own_task_alone():
    runs = [_run("a", measured=52, recorded=52), _run("b"), _run("c", measured=2, recorded=2)]
    made = _allowances(runs, measurements=24, scope=Scope.NETWORK)
    # Eight are the share of each: those of the first are its own.
    assert [made.left(run) for run in runs] == [0, 24 - 8 - 2, 24 - 8 - 2]
    assert made.total_measurements == 54 + 14


def test_records_of_one_run_spend_its_budget_however_they_are_divided():
    runs = [_run("a", measured=60, recorded=60), _run("b", measured=4, recorded=4)]
    made = _allowances(runs, measurements=64, scope=Scope.NETWORK)
    assert [made.left(run) for run in runs] == [0, 0]
    more = _allowances(runs, measurements=128, scope=Scope.NETWORK)
    assert [more.left(run) for run in runs] == [64, 64]


def test_nothing_shared_out_is_nothing():
    runs = [_run("a"), _run("b", of="a")]
    made = _allowances(runs, measurements=0)
    assert [made.left(run) for run in runs] == [0, 0]
