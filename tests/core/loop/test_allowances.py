"""Alternatives have a share of the budget of their own, and take nothing from the others."""

from types import SimpleNamespace

import pytest
from chameleon_cli._progress import Rate
from chameleon_core._loop.budget import Allowance, BudgetTracker
from chameleon_core._loop.round.stages import generator
from chameleon_core._measurement import (
    FailureKind,
    Measurement,
    Spending,
    failure_threshold,
    same_failure,
)
from chameleon_core._pipeline.schema import Budget, Scope
from chameleon_core._task import Task
from hypothesis import given
from hypothesis import strategies as st


def _run(name, *, measured=0, seconds=0.0, of="", cost=1.0, recorded=0):
    task = Task(
        name=name, operator="x", arguments={"n": name}, target="t", flop=1.0, alternative_of=of
    )
    return SimpleNamespace(
        task=task,
        measured=measured,
        recorded=recorded,
        recorded_seconds=0.0,
        all_seconds=seconds,
        spending=Spending(measure=seconds),
        tuner=SimpleNamespace(best_cost=cost),
    )


def _allowances(runs, **budget):
    return BudgetTracker(runs, Budget(**budget), seconds_before=0.0)


@pytest.mark.parametrize("scope", Scope)
def test_without_alternatives_the_budget_is_what_it_was(scope):
    runs = [_run("a", measured=3), _run("b", measured=4)]
    result = _allowances(runs, measurements=10, wall_time=50.0, scope=scope)
    assert result.of(runs[0]).left(runs[0]) == (3 if scope is Scope.NETWORK else 7)
    assert result.total_measurements == (10 if scope is Scope.NETWORK else 20)
    assert result.of(runs[0]).most(runs[0]) == 10


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("types", [1, 2])
def test_alternatives_add_at_most_sixty_percent(scope, types):
    own = [_run(f"{number}") for number in range(5)]
    others = [
        _run(f"{row.task.name} {kind}", of=row.task.name) for row in own for kind in range(types)
    ]
    result = _allowances([*own, *others], measurements=100, wall_time=50.0, scope=scope)
    alone = _allowances(own, measurements=100, wall_time=50.0, scope=scope)
    assert result.total_measurements == pytest.approx(1.6 * alone.total_measurements, abs=types * 5)
    assert result.total_measurements <= 1.6 * alone.total_measurements
    assert result.seconds_left == pytest.approx(1.6 * alone.seconds_left)


def test_neither_group_spends_what_is_the_other_ones():
    own, other = _run("a", seconds=40.0), _run("a int8", measured=60, seconds=30.0, of="a")
    result = _allowances([own, other], measurements=100, wall_time=50.0, scope=Scope.NETWORK)
    assert (result.of(own).left(own), result.of(other).left(other)) == (100, 0)
    assert not result.of(own).time_is_up(own)
    assert result.of(other).time_is_up(other)


@pytest.mark.parametrize(("taken", "up"), [(18.0, False), (25.0, False), (26.0, True)])
def test_another_batch_may_not_take_alternatives_over_their_share_of_the_seconds(taken, up):
    # A batch of four takes a fifth of what these twenty have taken.
    own = [_run("a", measured=10, seconds=20.0), _run("b", measured=30, seconds=31.0)]
    others = [_run("a int8", measured=20, seconds=taken, of="a"), _run("b int8", of="b")]
    result = _allowances([*own, *others], measurements=100, scope=Scope.NETWORK)
    assert result.share_is_up(4) is up
    assert 1.2 * 25.0 <= 0.6 * 51.0 < 1.2 * 26.0


def test_alternatives_have_all_of_their_share_before_the_first_is_measured():
    assert not _allowances([_run("a"), _run("a int8", of="a")], measurements=9).share_is_up(8)


def test_the_smallest_budget_measures_one_alternative():
    own, other = _run("a"), _run("a int8", of="a")
    assert _allowances([own, other], measurements=1).of(other).left(other) == 1


def test_a_target_latency_is_reached_by_the_network_as_it_is():
    own, other = _run("a", cost=2.0), _run("a int8", of="a", cost=0.1)
    assert not _allowances([own, other], latency=1.0).fast_enough
    assert _allowances([own, other], latency=2.0).fast_enough


def test_a_task_says_what_it_is_an_alternative_of_and_others_say_nothing():
    own, other = _run("a").task, _run("a int8", of="a").task
    assert "alternative_of" not in own.to_json()
    assert [Task(**row.to_json()) for row in (own, other)] == [own, other]


def test_tasks_that_nothing_is_known_of_spend_an_allowance_of_their_own():
    known, unknown = _run("a", measured=3), _run("b", measured=3)
    other = _run("c", measured=0, of="b")
    for run, predicted in ((known, True), (unknown, False), (other, False)):
        run.tuner.predicted = predicted
    result = _allowances([known, unknown, other], measurements=4, unpredicted=10)
    assert [result.of(run).left(run) for run in (known, unknown)] == [1, 7]
    assert result.of(other).most(other) == 6
    assert result.total_measurements == 20


def test_records_count_for_their_own_task_alone():
    runs = [_run("a", measured=52, recorded=52), _run("b"), _run("c", measured=2, recorded=2)]
    result = _allowances(runs, measurements=24, scope=Scope.NETWORK)
    # Eight are the share of each: those of the first are its own.
    assert [result.of(run).left(run) for run in runs] == [0, 24 - 8 - 2, 24 - 8 - 2]
    assert result.total_measurements == 54 + 14


def test_records_of_one_run_spend_its_budget_however_they_are_divided():
    runs = [_run("a", measured=60, recorded=60), _run("b", measured=4, recorded=4)]
    result = _allowances(runs, measurements=64, scope=Scope.NETWORK)
    assert [result.of(run).left(run) for run in runs] == [0, 0]
    more = _allowances(runs, measurements=128, scope=Scope.NETWORK)
    assert [more.of(run).left(run) for run in runs] == [64, 64]


def test_nothing_shared_out_is_nothing():
    runs = [_run("a"), _run("b", of="a")]
    result = _allowances(runs, measurements=0)
    assert [result.of(run).left(run) for run in runs] == [0, 0]


ONE, TWO = _run("one", measured=6, seconds=30.0), _run("two", measured=3, seconds=40.0)


def test_a_smaller_budget_than_what_is_spent_leaves_nothing():
    assert Allowance(budget=Budget(measurements=2), runs=[ONE]).left(ONE) == 0


@pytest.mark.parametrize(("scope", "up"), [(Scope.TASK, False), (Scope.NETWORK, True)])
def test_wall_time(scope, up):
    allowance = Allowance(budget=Budget(wall_time=50.0, scope=scope), runs=[ONE, TWO])
    assert allowance.time_is_up(ONE) is up


@pytest.mark.parametrize(("scope", "count"), [(Scope.TASK, 4), (Scope.NETWORK, 3)])
def test_wall_time_lasts_for_measurements_like_earlier_ones(scope, count):
    runs = [_run("a", measured=6, seconds=30.0), _run("b", measured=2, seconds=5.0, recorded=1)]
    for limit, lasting in ((50.0, count), (31.0, 1)):
        budget = Budget(wall_time=limit, scope=scope)
        assert Allowance(budget=budget, runs=runs).lasting(runs[0]) == lasting
    new = _run("new")
    assert Allowance(budget=Budget(wall_time=9.0), runs=[new]).lasting(new) is None


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
    assert Allowance(budget=Budget(patience=3)).out_of_patience(_costs(*costs)) is over


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


def failed(message="was killed by signal SIGILL", kind=FailureKind.CRASH):
    return Measurement(config=(0,), failure=kind, message=message)


VALID = Measurement(config=(1,), seconds=(1.0,))
OTHERS = [VALID, failed(kind=FailureKind.RUN_ERROR), failed("was killed by signal SIGSEGV")]


@given(st.integers(1, 40), st.integers(1, 40))
def test_as_many_as_are_asked_for_have_to_be_the_same(count, at_least):
    assert (same_failure([failed()] * count, at_least) is not None) == (count >= at_least)


@given(st.sampled_from(OTHERS), st.integers(0, 20))
def test_a_single_other_outcome_is_enough_to_go_on(other, place):
    measurements = [failed()] * 20
    measurements.insert(place, other)
    assert same_failure(measurements, 2) is None


def test_numbers_in_the_words_do_not_matter():
    texts = [
        "differs by 0.83, more than the accepted 1e-3",
        "differs by 7.1e2, more than the accepted 1e-3",
    ]
    wrong = [failed(text, FailureKind.WRONG_OUTPUT) for text in texts]
    assert same_failure(wrong, 2) == f"wrong_output: {texts[0]}"
    assert same_failure([failed("")] * 2, 2) == "crash"
    assert same_failure([], 1) is None


def test_words_about_a_lack_of_memory_do_not_matter():
    starved = [failed(text, FailureKind.OUT_OF_MEMORY) for text in ("MemoryError", "bad_alloc")]
    assert same_failure(starved, 2) == "out_of_memory: MemoryError"


@pytest.mark.parametrize(
    ("wanted", "batch_size", "expected"),
    [("auto", 4, 16), ("auto", 64, 128), (5, 64, 5), (None, 4, None)],
)
def test_how_many_are_convincing(wanted, batch_size, expected):
    assert failure_threshold(wanted, batch_size=batch_size) == expected
    memory = failure_threshold(wanted, batch_size=batch_size, failure=FailureKind.OUT_OF_MEMORY)
    assert memory == (expected // 2 if wanted == "auto" else expected)


def ticked(monkeypatch, **options):
    clock = iter(range(100))
    monkeypatch.setattr("chameleon_cli._progress.time.monotonic", lambda: float(next(clock)))
    rate = Rate(**options)
    for _ in range(10):
        rate.tick()
    return rate


def test_nothing_is_said_before_the_first_candidate():
    assert Rate().left(5) == "-"


def test_the_rate_tells_how_long_the_rest_takes(monkeypatch):
    assert ticked(monkeypatch).left(200) == "3:20"


def test_a_wall_clock_budget_may_end_it_earlier(monkeypatch):
    # Ten of seventy seconds are over.
    assert ticked(monkeypatch, seconds_left=70.0).left(1_000_000) == "1:00"


def test_the_wall_clock_that_is_left_follows_the_scope():
    runs = [_run("a", measured=3, seconds=10.0), _run("b", measured=1, seconds=40.0)]
    each = Allowance(budget=Budget(wall_time=30.0), runs=runs)
    together = Allowance(budget=Budget(wall_time=60.0, scope=Scope.NETWORK), runs=runs)
    assert each.seconds_left == 20.0
    assert together.seconds_left == 10.0
    assert Allowance(budget=Budget(), runs=runs).seconds_left is None
