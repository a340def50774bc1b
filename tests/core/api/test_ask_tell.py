"""Ask and tell: nothing is asked twice, what is told is checked, one seed gives one search."""

import math

import chameleon_core as cc
import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._api.measurements import non_dominated
from chameleon_core._errors import ConfigError, RunFolderError
from chameleon_core._events import BatchMeasured, Measured
from chameleon_core._measurement import FailureKind
from chameleon_core._run_view import RunView
from chameleon_core._space.knobs import Factorization
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import synthetic_registry

from .cases import STAGES, bowl

REGISTRY = synthetic_registry()

spaces = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def searched(cards, counts, *, seed=0, batch_size=5):
    """Everything that is asked of a grid until it is exhausted, batch by batch."""
    space = cc.design_space({f"knob{i}": list(range(card)) for i, card in enumerate(cards)})
    asked = []
    with cc.Tuner(space, **STAGES, registry=REGISTRY, seed=seed, batch_size=batch_size) as tuner:
        for number in range(100):
            batch = tuner.ask(counts[number % len(counts)])
            if not len(batch):
                break
            asked.append(batch.configs)
            tuner.tell(batch, [1.0 + sum(config) for config in batch.configs])
    return asked


@settings(max_examples=15)
@given(
    cards=spaces, counts=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 9)
)
def test_a_search_asks_for_everything_once_and_the_same_for_one_seed(cards, counts, seed):
    asked = searched(cards, counts, seed=seed)
    flat = [config for batch in asked for config in batch]
    assert len(flat) == len(set(flat)) == math.prod(cards)
    assert all(len(batch) <= max(counts) for batch in asked)
    assert asked == searched(cards, counts, seed=seed)


def test_another_seed_asks_otherwise():
    assert searched([4, 4, 4], [5], seed=0) != searched([4, 4, 4], [5], seed=1)


def test_what_is_asked_meets_the_conditions(tuner, tiles):
    search = tuner(tiles)
    while len(batch := search.ask()):
        assert all(row["tile"] * row["unroll"] <= 128 for row in batch)
        search.tell(batch, [bowl(**row) for row in batch])
    assert search.measured == len(tiles.all_legal)
    assert search.best.configuration == {"tile": 4, "unroll": 16, "vectorise": True}
    assert search.best.seconds == pytest.approx(1e-3)


def test_a_batch_is_told_once_whole_and_before_the_next(tuner, tiles):
    search = tuner(tiles)
    first = search.ask(3)
    with pytest.raises(ConfigError, match="the 3 configurations that were asked for last"):
        search.ask(3)
    for wrong in ([1.0], [1.0] * 4):
        with pytest.raises(ConfigError, match=f"{len(wrong)} seconds were told for 3"):
            search.tell(first, wrong)
    with pytest.raises(ConfigError, match="1 values of 'error' were told for 3"):
        search.tell(first, [1.0] * 3, other={"error": [0.0]})
    for wrong in (1.0, "abc", {0: 1.0, 1: 1.0, 2: 1.0}, {1.0, 2.0, 3.0}):
        with pytest.raises(ConfigError, match="no sequence"):
            search.tell(first, wrong)
    assert not search.measured
    search.tell(first, [1.0] * 3)
    with pytest.raises(ConfigError, match="told before"):
        search.tell(first, [1.0] * 3)
    second = search.ask(3)
    with pytest.raises(ConfigError, match="not the one that was asked for last"):
        search.tell(first, [1.0] * 3)
    search.tell(second, [1.0] * 3)
    assert search.measured == 6


def test_a_refused_outcome_leaves_the_batch_to_be_told(tuner, tiles):
    search = tuner(tiles)
    batch = search.ask(2)
    for wrong, said in (
        (-1.0, "above 0"),
        (0.0, "above 0"),
        ({}, "no outcome"),
        ([], "no outcome"),
        (True, "no outcome"),
        ([1.0, False], "no outcome"),
    ):
        with pytest.raises(ConfigError, match=said) as refused:
            search.tell(batch, [1.0, wrong])
        assert refused.value.hint
    assert not search.measured
    search.tell(batch, [1.0, [2.0, 3.0, 9.0]])
    assert search.measurements.seconds.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (None, FailureKind.RUN_ERROR, "it gave no time"),
        (math.inf, FailureKind.RUN_ERROR, "it took inf"),
        (math.nan, FailureKind.RUN_ERROR, "it took nan"),
        (ValueError("odd"), FailureKind.RUN_ERROR, "ValueError: odd"),
        (MemoryError(), FailureKind.OUT_OF_MEMORY, "MemoryError: "),
        (TimeoutError("5 s"), FailureKind.RUN_TIMEOUT, "TimeoutError: 5 s"),
        ("wrong_output: 0.3", FailureKind.WRONG_OUTPUT, "0.3"),
        ("no such: thing", FailureKind.RUN_ERROR, "no such: thing"),
    ],
)
def test_a_failure_has_its_kind(tuner, tiles, said, kind, message):
    search = tuner(tiles)
    search.tell(search.ask(1), [said])
    (trial,) = search.measurements
    assert (trial.failure, trial.message, trial.seconds) == (kind, message, None)
    assert search.best is None


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "8"])
def test_a_count_is_a_whole_number(tuner, tiles, count):
    with pytest.raises(ConfigError, match="'count' must be a whole number"):
        tuner(tiles).ask(count)


def test_no_batch_is_larger_than_stages_plan_for(tuner, tiles):
    with pytest.raises(ConfigError, match="more than a batch of 4") as refused:
        tuner(tiles, batch_size=4).ask(5)
    assert "batch_size=5" in refused.value.hint


def test_a_stage_is_looked_up_as_in_a_pipeline(tuner, tiles):
    with pytest.raises(
        ConfigError, match=r"arguments of the tuner, explorer: .*'syntetic'"
    ) as caught:
        tuner(tiles, explorer="syntetic")
    assert "did you mean 'synthetic'" in str(caught.value)


def test_what_is_enqueued_comes_first_and_once(tuner, tiles):
    wanted = [
        {"tile": 8, "unroll": 16, "vectorise": True},
        {"tile": 1, "unroll": 64, "vectorise": False},
        {"tile": 2, "unroll": 0, "vectorise": False},
    ]
    search = tuner(tiles)
    for row in (*wanted, wanted[0]):
        search.enqueue(row)
    first = search.ask(2)
    assert list(first) == wanted[:2]
    assert set(first.origins) == {"suggestion"}
    search.tell(first, [1.0, 1.0])
    search.enqueue(wanted[0])
    second = search.ask(4)
    assert second[0] == wanted[2]
    assert len(second) == 4
    assert second.origins[0] == "suggestion"
    assert "suggestion" not in second.origins[1:]


def test_callbacks_are_told_typed_events_and_may_stop(tuner, tiles, stages):
    events = []
    search = tuner(tiles, callbacks=[events.append])
    search.tell(search.ask(2), [1.0, 2.0])
    assert [event.seconds for event in events if isinstance(event, Measured)] == [1.0, 2.0]
    assert [event.count for event in events if isinstance(event, BatchMeasured)] == [2]
    assert not search.stopped

    def enough(event):
        return cc.STOP if isinstance(event, Measured) and event.seconds <= 2e-3 else None

    result = cc.minimize(bowl, tiles, budget=18, callbacks=[enough], **stages)
    assert result.best.seconds <= 2e-3
    assert result.measurements[-1].seconds <= 2e-3
    assert sum(trial.seconds <= 2e-3 for trial in result.measurements) == 1


def test_a_function_is_tuned_to_its_optimum(tiles, stages):
    result = cc.minimize(bowl, tiles, budget=100, **stages)
    assert result.best.configuration == {"tile": 4, "unroll": 16, "vectorise": True}
    assert len(result.measurements) == len(tiles.all_legal)
    with pytest.raises(ConfigError, match="'budget'"):
        cc.minimize(bowl, tiles, budget=0, **stages)


def test_an_exception_is_a_failed_configuration(tiles, stages):
    def picky(tile, unroll, vectorise):
        if tile == 1:
            raise TimeoutError("too slow")
        return bowl(tile, unroll, vectorise)

    result = cc.minimize(picky, tiles, budget=100, **stages)
    failed = [trial for trial in result.measurements if trial.failure]
    assert {trial.failure for trial in failed} == {FailureKind.RUN_TIMEOUT}
    assert {trial.configuration["tile"] for trial in failed} == {1}
    assert len(failed) == 6


def test_fixed_knobs_hold_their_values(tuner, tiles):
    search = tuner(tiles, fix={"tile": 8})
    batch = search.ask()
    assert {row["tile"] for row in batch} == {8}
    search.tell(batch, [1.0] * len(batch))
    assert search.measured == 4
    assert not len(search.ask())
    with pytest.raises(ConfigError, match=r"does not hold the fixed values \{'tile': 8\}"):
        search.enqueue({"tile": 1, "unroll": 0, "vectorise": False})


def test_other_quantities_make_a_front(tuner, tiles):
    search = tuner(tiles, batch_size=4)
    search.tell(search.ask(4), [1.0, 2.0, 3.0, None], other={"error": [0.3, 0.4, 0.1, 0.0]})
    front = search.measurements.front(("seconds", "error"))
    assert [(row.seconds, row.other["error"]) for row in front] == [(1.0, 0.3), (3.0, 0.1)]
    assert "error" in search.measurements.quantities
    assert search.best.other == {"error": 0.3}
    with pytest.raises(ConfigError, match="no quantity 'eror' is stored; did you mean 'error'"):
        search.measurements.front(("seconds", "eror"))
    with pytest.raises(ConfigError, match="several quantities"):
        search.measurements.front("seconds")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"bytes": ["a", "b"]}, "'bytes' has the value 'a', which is no number"),
        ({"bytes": "ab"}, "no sequence"),
        ({"build_seconds": [1, 2]}, "no quantity of yours can be called 'build_seconds'"),
        ({"origin": [1, 2]}, "no quantity of yours can be called 'origin'"),
        ({1: [1, 2]}, "no quantity of yours can be called 1"),
        ([1, 2], "'other' must be lists of numbers by name"),
    ],
)
def test_a_quantity_that_is_none_is_refused(tuner, tiles, other, said):
    search = tuner(tiles)
    batch = search.ask(2)
    with pytest.raises(ConfigError, match=said) as refused:
        search.tell(batch, [1.0, 2.0], other=other)
    assert refused.value.hint
    assert not search.measured
    search.tell(batch, [1.0, 2.0])


def test_a_configuration_may_lack_a_quantity(tuner, tiles):
    search = tuner(tiles)
    search.tell(search.ask(3), [1.0, None, 3.0], other={"bytes": [np.int64(64), None, 32]})
    assert [row.other for row in search.measurements] == [{"bytes": 64.0}, {}, {"bytes": 32.0}]
    assert np.isnan(search.measurements.quantity("bytes")).tolist() == [False, True, False]


@pytest.mark.parametrize("function", [None, lambda tile, unrol, vectorise: 1.0, lambda tile: 1.0])
def test_a_function_that_does_not_take_the_knobs_is_no_space_of_failures(
    tuner, tiles, stages, function
):
    with pytest.raises(ConfigError, match=r"no function|cannot be called") as refused:
        cc.minimize(function, tiles, budget=4, **stages)
    assert "tile, unroll, vectorise" in refused.value.hint
    search = tuner(tiles)
    with pytest.raises(ConfigError, match=r"no function|cannot be called"):
        search.evaluate(search.ask(), function)
    assert not len(search.measurements)


def test_what_is_no_space_or_no_list_of_callbacks_says_so(tuner, tiles, stages, tmp_path):
    with pytest.raises(ConfigError, match="is no design space"):
        tuner({"tile": [1, 2]})
    with pytest.raises(ConfigError, match="is no design space"):
        cc.minimize(bowl, {"tile": [1, 2]}, budget=4, **stages)
    for callbacks in (print, [3], 3):
        with pytest.raises(ConfigError, match="'callbacks' must be a list of functions"):
            tuner(tiles, callbacks=callbacks, store=tmp_path / "none")
    for fix in (["tile"], "tile"):
        with pytest.raises(ConfigError, match="says no values"):
            tuner(tiles, fix=fix, store=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="'tile' is no configuration"):
        tuner(tiles).enqueue("tile")


def test_numbers_of_numpy_are_numbers(tuner, tiles):
    search = tuner(tiles, seed=np.int64(3), batch_size=np.int32(4))
    assert search.batch_size == 4
    assert search.ask().configs == tuner(tiles, seed=3, batch_size=4).ask().configs


def test_an_exhausted_space_has_nothing_to_evaluate(tuner, tiles):
    search = tuner(tiles, batch_size=24)
    search.evaluate(search.ask(), bowl)
    nothing = search.ask()
    assert not len(nothing)
    search.tell(nothing, [])
    search.evaluate(nothing, bowl)
    with pytest.raises(ConfigError, match="1 seconds were told for 0"):
        search.tell(nothing, [1.0])


def test_a_closed_tuner_says_so(tuner, tiles):
    with tuner(tiles) as search:
        search.tell(search.ask(2), [2.0, 1.0])
    assert search.best.seconds == 1.0
    for use in (search.ask, lambda: search.measurements.seconds, search.rows):
        with pytest.raises(ConfigError, match="this tuner was closed"):
            use()


def test_some_of_the_measurements_are_a_list(tuner, tiles):
    search = tuner(tiles)
    search.tell(search.ask(3), [3.0, 1.0, 2.0])
    assert [row.seconds for row in search.measurements[1:]] == [1.0, 2.0]
    assert [row.seconds for row in search.measurements[::-1]] == [2.0, 1.0, 3.0]


def test_a_configuration_is_the_same_wherever_it_is_read(tuner):
    search = tuner(cc.design_space(tile=Factorization(name="tile", extent=8)))
    batch = search.ask(2)
    search.tell(batch, [1.0, 2.0])
    assert list(batch) == list(search.measurements.configurations)
    assert search.best.configuration == search.measurements[0].configuration == batch[0]


def test_a_batch_that_was_evaluated_in_part_is_evaluated_to_its_end(tuner, tiles):
    search = tuner(tiles, callbacks=[lambda event: cc.STOP if type(event) is Measured else None])
    batch = search.ask(3)
    search.evaluate(batch, bowl)
    assert (search.stopped, search.measured, len(search.measurements)) == (True, 0, 1)
    with pytest.raises(ConfigError, match="a part of this batch was evaluated already"):
        search.tell(batch, [1.0] * 3)
    search.stopped = False
    search.evaluate(batch, bowl)
    search.stopped = False
    search.evaluate(batch, bowl)
    assert search.measured == 3
    assert [trial.config for trial in search.measurements] == list(batch.configs)


points = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=12)


def dominates(one, other):
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


@given(points=points)
def test_a_point_is_in_the_front_where_nothing_dominates_it(points):
    rows = non_dominated(np.array(points, float).reshape(-1, 3)).tolist()
    expected = [i for i, point in enumerate(points) if not any(dominates(p, point) for p in points)]
    assert sorted(rows) == expected
    assert [points[row] for row in rows] == sorted(points[row] for row in rows)


def rounds(search, count, size=3):
    """Some rounds of a search: what was asked in each."""
    asked = []
    for _ in range(count):
        batch = search.ask(size)
        search.tell(batch, [bowl(**row) for row in batch])
        asked.append(batch.configs)
    return asked


def test_a_restarted_search_goes_on_where_it_was(tuner, tiles, tmp_path):
    whole = rounds(tuner(tiles), 4)
    with tuner(tiles, store=tmp_path / "kept") as first:
        begun = rounds(first, 2)
    with tuner(tiles, store=tmp_path / "kept") as second:
        assert second.measured == 6
        assert second.best.seconds == min(trial.seconds for trial in second.measurements)
        assert begun + rounds(second, 2) == whole
    with tuner(tiles, store=tmp_path / "kept") as third:
        assert third.measured == 12


def test_what_was_enqueued_is_replayed(tuner, tiles, tmp_path):
    def program(**more):
        search = tuner(tiles, **more)
        asked = rounds(search, 1)
        search.enqueue({"tile": 8, "unroll": 16, "vectorise": True})
        return search, asked + rounds(search, 1)

    whole, asked = program()
    asked += rounds(whole, 2)
    stored, _ = program(store=tmp_path / "kept")
    stored.close()
    with tuner(tiles, store=tmp_path / "kept") as again:
        assert rounds(again, 2) == asked[2:]


def test_an_interrupted_batch_is_not_evaluated_again(tiles, stages, tmp_path):
    whole = cc.minimize(bowl, tiles, budget=12, batch_size=4, **stages)
    called = []

    def breaks(**configuration):
        called.append(configuration)
        if len(called) == 7:
            raise KeyboardInterrupt
        return bowl(**configuration)

    keep = {"budget": 12, "batch_size": 4, "store": tmp_path / "kept", **stages}
    with pytest.raises(KeyboardInterrupt):
        cc.minimize(breaks, tiles, **keep)
    result = cc.minimize(breaks, tiles, **keep)
    assert result.measurements.configs.tolist() == whole.measurements.configs.tolist()
    assert len(called) == 12 + 1
    again = cc.minimize(breaks, tiles, **keep)
    assert (len(called), again.best) == (13, result.best)


def test_a_store_is_one_search_s_and_one_process_s(tuner, tiles, pipeline, tmp_path):
    store = tmp_path / "kept"
    with tuner(tiles, store=store) as search:
        rounds(search, 1)
        with pytest.raises(RunFolderError, match="being written by another run"):
            tuner(tiles, store=store)
    with pytest.raises(RunFolderError, match="another search: seed was 0 and is 1"):
        tuner(tiles, store=store, seed=1)
    with pytest.raises(RunFolderError, match=r"fix was \{\} and is \{'tile': 8\}"):
        tuner(tiles, store=store, fix={"tile": 8})
    with tuner(tiles, store=store) as again:
        assert again.measured == 3


def test_another_space_begins_anew(tuner, tiles, tmp_path):
    with tuner(tiles, store=tmp_path / "kept") as search:
        rounds(search, 1)
    other = cc.design_space(
        tile=[1, 2, 4, 8],
        unroll=[0, 16, 64],
        vectorise=[False, True],
        where=[lambda tile, unroll: tile * unroll <= 256],
    )
    assert other.fingerprint != tiles.fingerprint
    with tuner(other, store=tmp_path / "kept") as search:
        assert not search.measured


def test_a_folder_s_operator_is_that_of_the_space_it_was_used_with_last(tuner, tiles, tmp_path):
    other = cc.design_space(tile=[1, 2, 4, 8], unroll=[0, 16], vectorise=[False, True])
    for space, count in ((tiles, 1), (other, 2), (tiles, 1)):
        with tuner(space, store=tmp_path / "kept") as search:
            rounds(search, count)
    run = cc.load_run(tmp_path / "kept")
    assert [row.fingerprint for row in run.result.operators] == [tiles.fingerprint]
    assert len(run.measurements) == 6
    with RunView(tmp_path / "kept") as view:
        assert len(view.store.tasks()) == 2
        assert [len(row.measurements) for row in view.operators] == [6]


def test_its_status_tells_what_there_is(tuner, tiles, tmp_path, capsys):
    with tuner(tiles, store=tmp_path / "kept") as search:
        rounds(search, 1)
    assert command_line(["status", str(tmp_path / "kept")]) == 0
    printed = capsys.readouterr().out
    assert "function" in printed
    assert "None" not in printed


def test_other_quantities_are_there_again(tuner, tiles, tmp_path):
    with tuner(tiles, store=tmp_path / "kept") as search:
        search.tell(search.ask(2), [1.0, 2.0], other={"error": [0.5, 0.25]})
    with tuner(tiles, store=tmp_path / "kept") as search:
        assert search.measurements.quantity("error").tolist() == [0.5, 0.25]
