"""Several tasks of a run are tuned at once: devices stay busy, and nothing else changes."""

import contextlib
import itertools

import pytest
from chameleon_core._loop.interruption import RunInterrupted
from chameleon_core._loop.round.in_flight import WallClockShares, tasks_at_once
from chameleon_core.plugin_api import hookimpl
from hypothesis import given, settings
from hypothesis import strategies as st
from stopping import StopAfter
from structlog.testing import capture_logs
from synthetic import measurements_in

from .virtual import VirtualFleet, pipeline_of, run

DIFFERENT = [[9, 9, 9], [8, 9, 10], [7, 9, 11], [6, 10, 12]]


def stored(folder):
    return {name: [m.config for m in rows] for name, rows in measurements_in(folder).items()}


# -- what theory says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_once", "expected"),
    [
        # One after the other: every round searches, measures on all devices at once, and learns.
        (1, 12 * (0.05 + 0.2 + 0.05)),
        # Overlapping: only the first search and the last lesson leave devices idle.
        (2, 0.05 + 12 * 0.2 + 0.05),
        (4, 0.05 + 12 * 0.2 + 0.05),
        ("auto", 0.05 + 12 * 0.2 + 0.05),
    ],
)
def test_devices_are_as_busy_as_can_be(tmp_path, monkeypatch, at_once, expected):
    budget = {"measurements": 24, "batch_size": 8, "tasks_at_once": at_once}
    pipeline = pipeline_of(tmp_path / "run", operators=DIFFERENT, budget=budget)
    result, fleet = run(monkeypatch, pipeline, search_seconds=0.05)
    assert [operator.measurements for operator in result.operators] == [24] * 4
    assert fleet.clock == pytest.approx(expected)
    assert fleet.busy_seconds == pytest.approx(4 * 24 * 0.2)
    # The seconds of the tasks add up to those that passed, whatever went on side by side.
    assert sum(o.spending.total for o in result.operators) == pytest.approx(fleet.clock)


@pytest.mark.parametrize("uneven", [0.0, 0.5])
def test_batches_smaller_than_the_fleet_fill_it_together(tmp_path, monkeypatch, uneven):
    def took(at_once):
        budget = {"measurements": 24, "batch_size": 4, "tasks_at_once": at_once}
        fleet = {"devices": 12, "uneven": uneven}
        folder = tmp_path / str(at_once)
        pipeline = pipeline_of(folder, operators=DIFFERENT, budget=budget, fleet=fleet)
        return run(monkeypatch, pipeline, search_seconds=0.01)[1].clock

    # Three batches of four side by side, instead of one.
    assert took(4) < took(1) / 2.2


def test_auto_is_one_to_search_one_to_build_and_as_many_as_fill_the_lanes():
    def auto(**more):
        return tasks_at_once("auto", **{"lanes": 8, "batch_size": 16, "tasks": 20, **more})

    assert auto() == 3
    assert auto(batch_size=4) == 4
    assert auto(lanes=0) == 1, "a search would disturb what is timed"
    assert auto(lanes=1) == 3
    assert auto(tasks=2) == 2
    assert tasks_at_once(5, lanes=0, batch_size=8, tasks=3) == 3


# -- nothing is lost, repeated, or given away twice ---------------------------------------------


@pytest.mark.full
@settings(max_examples=16, deadline=None)
@given(
    budget=st.fixed_dictionaries(
        {
            "measurements": st.integers(1, 20),
            "batch_size": st.integers(1, 6),
            "scope": st.sampled_from(["task", "network"]),
            "tasks_at_once": st.integers(1, 5),
        }
    ),
    fleet=st.fixed_dictionaries(
        {"devices": st.integers(1, 9), "uneven": st.sampled_from([0.0, 0.5])}
    ),
    scheduler=st.sampled_from(["round-robin", "gradient"]),
    failing=st.sampled_from([0, 40]),
)
def test_budgets_are_kept_and_every_candidate_is_measured_once(
    tmp_path_factory, budget, fleet, scheduler, failing
):
    folder = tmp_path_factory.mktemp("property") / "run"
    pipeline = pipeline_of(
        folder,
        operators=DIFFERENT[:3],
        failing=failing,
        scheduler=scheduler,
        budget=budget,
        fleet=fleet,
    )
    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        result, used = run(patch, pipeline, search_seconds=0.03)
    counts = [operator.measurements for operator in result.operators]
    asked = [(name, config) for name, configs in stored(folder).items() for config in configs]
    assert sorted(asked) == sorted(used.submitted.elements())
    assert len(set(asked)) == len(asked) == sum(counts)
    assert used.overlapping <= budget["tasks_at_once"]
    assert max(counts) <= budget["measurements"]
    total = budget["measurements"] * (3 if budget["scope"] == "task" else 1)
    assert sum(counts) <= total
    if scheduler == "round-robin":
        assert sum(counts) == total
    assert not [log for log in logs if log["event"] == "left_over_measurements_kept"]


def test_the_target_latency_ends_a_run_once_what_is_in_flight_is_learnt(tmp_path, monkeypatch):
    budget = {"measurements": 500, "batch_size": 4, "latency": "1000s", "tasks_at_once": 3}
    pipeline = pipeline_of(tmp_path / "run", operators=DIFFERENT, budget=budget)
    result, _ = run(monkeypatch, pipeline, search_seconds=0.05)
    # When the last task has its first batch, no more are begun.
    assert [operator.measurements for operator in result.operators][-1] == 4
    assert sum(operator.measurements for operator in result.operators) <= 4 * 6


def test_wall_time_of_the_network_is_that_of_the_clock(tmp_path, monkeypatch):
    def took(at_once):
        budget = {
            "measurements": 500,
            "batch_size": 8,
            "wall_time": 5.9,
            "scope": "network",
            "tasks_at_once": at_once,
        }
        pipeline = pipeline_of(tmp_path / str(at_once), operators=DIFFERENT, budget=budget)
        result, fleet = run(monkeypatch, pipeline, search_seconds=0.05)
        return fleet.clock, sum(operator.measurements for operator in result.operators)

    (alone, few), (together, many) = took(1), took(4)
    # When the time is up, what is in flight is measured, and the others propose a last batch.
    assert 5.9 <= alone <= 5.9 + 0.3 + 4 * 0.05
    assert 5.9 <= together <= 5.9 + 4 * (0.2 + 0.05 + 0.05)
    assert many > 1.3 * few


class Begun:
    """Notes which task has a batch begun, and which is learnt."""

    def __init__(self):
        self.order = []

    @hookimpl
    def chameleon_batch_proposed(self, event):
        self.order.append(("begun", event.task))

    @hookimpl
    def chameleon_batch_measured(self, event):
        self.order.append(("learnt", event.task.name))


def test_batches_are_learnt_as_they_are_complete(tmp_path, monkeypatch):
    budget = {"measurements": 24, "batch_size": 3, "tasks_at_once": 3}
    listener = Begun()
    fleet = {"devices": 6, "uneven": 0.5}
    pipeline = pipeline_of(tmp_path / "run", operators=DIFFERENT, budget=budget, fleet=fleet)
    run(monkeypatch, pipeline, search_seconds=0.01, listeners=[listener])
    begun = [task for what, task in listener.order if what == "begun"]
    learnt = [task for what, task in listener.order if what == "learnt"]
    assert sorted(begun) == sorted(learnt)
    assert begun != learnt, "uneven candidates let a later batch overtake"
    in_flight = list(
        itertools.accumulate((1 if what == "begun" else -1) for what, _ in listener.order)
    )
    assert max(in_flight) == 3


def test_a_scheduler_that_knows_of_no_flights_is_asked_again(tmp_path, monkeypatch):
    budget = {"measurements": 12, "batch_size": 4, "tasks_at_once": 3}
    pipeline = pipeline_of(
        tmp_path / "run", operators=DIFFERENT, budget=budget, scheduler="stubborn"
    )
    result, fleet = run(monkeypatch, pipeline, search_seconds=0.05)
    assert [operator.measurements for operator in result.operators] == [12] * 4
    # It insists on the first task that is not done, which can have one batch at a time.
    assert fleet.overlapping == 1


# -- stopping and going on ------------------------------------------------------------------------


@pytest.mark.full
@settings(max_examples=6, deadline=None)
@given(
    stops=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    at_once=st.integers(2, 4),
    model=st.sampled_from(["alike", "different"]),
)
def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path_factory, stops, at_once, model):
    folder = tmp_path_factory.mktemp("stopped") / "run"
    pipeline = pipeline_of(
        folder,
        operators=DIFFERENT[:3],
        failing=20,
        # Tasks with the same knobs hear of each other's best, so that the order of batches matters.
        **({"model": {"alike": {}}} if model == "alike" else {}),
        budget={"measurements": 18, "batch_size": 4, "tasks_at_once": at_once},
        fleet={"devices": 5, "uneven": 0.5},
    )
    before = set()
    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        for count in [*stops, None]:
            stop = StopAfter(count, here=True)
            more = {"listeners": [stop], "interruption": stop.interruption}
            with contextlib.suppress(RunInterrupted):
                run(patch, pipeline, search_seconds=0.03, **more)
            if not VirtualFleet.made:
                break  # it had ended, and was only read
            asked = VirtualFleet.made[-1].submitted
            assert not before & set(asked), "nothing is measured twice"
            listed = [(name, c) for name, result in stored(folder).items() for c in result]
            assert before <= set(listed) <= before | set(asked)
            assert len(listed) >= min(len(before) + (count or 54), 54)
            before = set(listed)
    assert len(before) == 54
    # The search was where it had been: nothing of the records was left over.
    assert not [log for log in logs if log["event"] == "left_over_measurements_kept"]


# -- the seconds ----------------------------------------------------------------------------------


def test_a_second_is_shared_by_all_that_goes_on_in_it():
    clock = [0.0]
    sheet = WallClockShares(lambda: clock[0])
    sheet.start("a")
    clock[0] = 1.0
    sheet.start("b")
    clock[0] = 3.0
    assert sheet.take("a") == pytest.approx(1.0 + 1.0)
    clock[0] = 4.0
    assert sheet.stop("b") == pytest.approx(1.5)
    clock[0] = 6.0
    assert sheet.stop("a") == pytest.approx(0.5 + 2.0)
