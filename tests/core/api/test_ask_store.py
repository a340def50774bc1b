"""A store answers again after a restart, and a search goes on as if nothing had happened."""

from __future__ import annotations

import chameleon_core as cc
import pytest
from chameleon_cli.main import run as command_line
from chameleon_core.errors import RunFolderError
from chameleon_core.run_view import RunView

from .cases import bowl


def rounds(search, count, size=3):
    """Some rounds of a search: what was asked in each."""
    asked = []
    for _ in range(count):
        batch = search.ask(size)
        search.tell(batch, [bowl(**one) for one in batch])
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
    kept, _ = program(store=tmp_path / "kept")
    kept.close()
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
    found = cc.minimize(breaks, tiles, **keep)
    assert found.measurements.configs.tolist() == whole.measurements.configs.tolist()
    assert len(called) == 12 + 1
    again = cc.minimize(breaks, tiles, **keep)
    assert (len(called), again.best) == (13, found.best)


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
    assert [one.fingerprint for one in run.result.operators] == [tiles.fingerprint]
    assert len(run.measurements) == 6
    with RunView(tmp_path / "kept") as view:
        assert len(view.store.tasks()) == 2
        assert [len(one.measurements) for one in view.operators] == [6]


def test_its_status_tells_what_there_is(tuner, tiles, tmp_path, capsys):
    with tuner(tiles, store=tmp_path / "kept") as search:
        rounds(search, 1)
    assert command_line(["status", str(tmp_path / "kept")]) == 0
    told = capsys.readouterr().out
    assert "function" in told
    assert "None" not in told


def test_other_quantities_are_there_again(tuner, tiles, tmp_path):
    with tuner(tiles, store=tmp_path / "kept") as search:
        search.tell(search.ask(2), [1.0, 2.0], other={"error": [0.5, 0.25]})
    with tuner(tiles, store=tmp_path / "kept") as search:
        assert search.measurements.quantity("error").tolist() == [0.5, 0.25]
