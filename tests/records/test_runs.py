"""Every run looks into its record databases first, and adds to them."""

import attrs
import pytest
from chameleon_core._fallbacks import STRICT
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import FailureKind
from chameleon_core._pipeline.load import from_dict
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import RecordDatabase, Runner
from chameleon_records import hooks
from chameleon_records._locations import open_database
from stopping import StopAfter, interrupted
from structlog.testing import capture_logs
from synthetic import (
    ModelOptions,
    SyntheticFrontend,
    SyntheticRunner,
    synthetic_document,
    synthetic_registry,
)

from .synthetic import contents, key_of, record_of


def stored(folder):
    with RecordStore.of_run(folder) as store:
        return {
            task.task.name: {
                measured.config: origin
                for measured, origin in zip(
                    store.measurements(task.id), store.origins(task.id), strict=True
                )
            }
            for task in store.tasks()
        }


@pytest.mark.parametrize("name", ["db.sqlite", "folder"])
def test_a_run_of_another_seed_measures_nothing_again(run, measured, tmp_path, name):
    place = str(tmp_path / name)
    operators = [[50, 50], [30, 40]]
    first = run("one", records=place, seed=1, operators=operators)
    second = run("two", records=place, seed=2, operators=operators)
    assert len(measured("one")) == 40
    assert measured("two") == []
    for one, other in zip(first.operators, second.operators, strict=True):
        assert one.config == other.config
        assert other.origins == {"record": 20}
        assert other.measurements == 20
        assert other.ended == "the measurement budget is spent"


@pytest.mark.parametrize("scheduler", ["round-robin", "gradient"])
def test_a_larger_budget_goes_on_where_the_records_end(run, measured, place, scheduler):
    run("one", records=place, seed=1)
    budget = {"measurements": 28, "batch_size": 4}
    second = run("two", records=place, seed=2, budget=budget, scheduler=scheduler)
    assert len(measured("two")) == 8
    assert not set(measured("two")) & set(measured("one"))
    # The search learns of the records: it proposes, and does not begin with first guesses.
    assert second.operators[0].origins.keys() == {"record", "explorer"}
    # The database has the new ones, too, and no third run measures any of them.
    run("three", records=place, seed=3, budget=budget)
    assert measured("three") == []


def test_what_a_scheduler_had_left_alone_is_left_alone(run, measured, place):
    more = {"scheduler": "gradient", "budget": {"measurements": 400, "batch_size": 4}}
    run("one", records=place, operators=[[9, 9], [9, 8]], seed=1, **more)
    run("two", records=place, operators=[[9, 9], [9, 8]], seed=2, **more)
    assert len(measured("two")) <= 0.05 * len(measured("one"))


def test_other_conditions_share_nothing(run, measured, place, plugin):
    run("one", records=place)
    run("two", records=place, target="elsewhere")
    run("three", records=place, runner_plugin=plugin("runners", MoreThreads))
    assert len(measured("two")) == 20
    assert len(open_database(place).keys()) == 3


class OddRunner(SyntheticRunner):
    def __init__(self, _options):
        super().__init__(attrs.make_class("O", ["delay", "log", "hold"])(0.0, "", ""))


class MoreThreads(OddRunner):
    def conditions(self):
        return {"threads": 2}


def test_a_runner_that_says_nothing_shares_nothing(run, place, plugin, tmp_path):
    class_ = plugin("runners", Silent)
    run("one", records=place, runner_plugin=class_)
    assert not open_database(place).keys()


class Silent(MoreThreads):
    def conditions(self):
        return Runner.conditions(self)


def test_recorded_tables_share_nothing(run, place):
    run("one", records=place, runner_name="synthetic-replay")
    assert not open_database(place).keys()


def test_a_resumed_run_depends_on_no_database(run, place, tmp_path):
    run("one", records=place, seed=1)
    more = {"budget": {"measurements": 40, "batch_size": 4}, "seed": 2, "records": place}
    run("whole", **more)
    # The same again, from the database as it was: interrupted, and gone when it goes on.
    other = str(tmp_path / "other.sqlite")
    run("same", records=other, seed=1)
    document = synthetic_document(
        tmp_path / "resumed", operators=[[50, 50]], **{**more, "records": other}
    )
    interrupted(from_dict(document, registry=synthetic_registry(hooks)), StopAfter(7))
    (tmp_path / "other.sqlite").unlink()
    alone = from_dict({**document, "records": "none"}, registry=synthetic_registry(hooks))
    assert run_pipeline(alone).operators[0].measurements == 40
    assert stored(tmp_path / "resumed") == stored(tmp_path / "whole")


def test_an_interrupted_run_has_added_what_it_measured(place, tmp_path):
    document = synthetic_document(tmp_path / "run", operators=[[50, 50]], records=place)
    interrupted(from_dict(document, registry=synthetic_registry(hooks)), StopAfter(6))
    ((_, records),) = contents(open_database(place)).items()
    assert len(records) >= 6


def test_without_records_a_run_is_what_it_was(run, tmp_path, place):
    run("plain", seed=1)
    run("empty", seed=1, records=place)
    assert stored(tmp_path / "plain") == stored(tmp_path / "empty")


class Wrong(OddRunner):
    """Every configuration whose first index is 0 gives wrong results here."""

    def compare(self, task, contenders):
        def outcome(contender, found):
            if contender.config and contender.config[0] == 0:
                return attrs.evolve(
                    found, seconds=(), failure=FailureKind.WRONG_OUTPUT, message="off"
                )
            return found

        return list(map(outcome, contenders, super().compare(task, contenders)))


@pytest.mark.parametrize("baselines", [["synthetic"], []])
def test_records_that_fail_here_make_room_for_the_next(run, place, plugin, baselines):
    run("one", records=place, operators=[[9, 9]], budget={"measurements": 1}, baselines=[])
    database = open_database(place)
    (key,) = database.keys()
    lies = [record_of((0, index), seconds=(1e-9 * (1 + index),)) for index in range(5)]
    database.add({key: [*lies, record_of((3, 3), seconds=(1e-3,))]})
    with capture_logs() as logs:
        result = run(
            "two",
            records=place,
            operators=[[9, 9]],
            budget={"measurements": 6, "batch_size": 4},
            runner_plugin=plugin("runners", Wrong),
            baselines=baselines,
        )
    assert result.operators[0].config == (3, 3)
    assert not result.operators[0].recorded, "the comparison has built and checked it"
    said = [one for one in logs if one["event"] == "failing_record_not_used"]
    assert [one["config"][0] for one in said] == [0] * 5


class Delivering(SyntheticFrontend):
    """Says what it is to deliver."""

    seen = []

    def deliver(self, delivery):
        self.seen.append(delivery.winners)


def test_what_is_checked_with_its_network_is_not_measured_for_that(run, measured, place, plugin):
    frontend = plugin("frontends", Delivering, ModelOptions)
    more = {"records": place, "baselines": [], "plugins": [frontend]}
    more["model"] = {"odd": {"operators": [[9, 9]]}}
    run("one", seed=1, **more)
    result = run("two", seed=2, **more)
    assert measured("two") == []
    ((own,), (recorded,)) = Delivering.seen
    assert own.checked
    assert not own.guesses
    assert recorded.config == own.config
    assert recorded.seconds == own.seconds
    assert not recorded.checked
    assert len(recorded.guesses) >= 3
    assert recorded.config not in recorded.guesses
    assert result.operators[0].recorded
    assert RunResult.from_json(result.to_json(), folder=result.folder).operators[0].recorded


def test_records_none_of_which_succeeded_do_not_count(run, measured, place):
    run("one", records=place, operators=[[9, 9]], budget={"measurements": 1})
    (key,) = open_database(place).keys()
    lies = str(place).replace("records", "lies")
    failure = {"seconds": (), "failure": FailureKind.CRASH, "message": "so they say"}
    open_database(lies).add(
        {key: [record_of((i, j), **failure) for i in range(9) for j in range(9)]}
    )
    result = run("two", records=lies, operators=[[9, 9]])
    assert len(measured("two")) == 20
    assert result.operators[0].tuned_seconds


@pytest.mark.full
def test_two_databases_are_one_and_the_first_is_added_to(run, measured, place, tmp_path):
    other = str(tmp_path / "folder")
    run("one", records=place, operators=[[50, 50]])
    run("two", records=other, operators=[[30, 40]])
    run("three", records=[place, other], operators=[[50, 50], [30, 40], [20, 20]], seed=3)
    assert len(measured("three")) == 20
    assert len(open_database(place).keys()) == 2
    assert len(open_database(other).keys()) == 1


def test_keys_depend_on_what_a_result_does_and_on_nothing_else():
    assert key_of() == key_of(arguments={"failing": 0, "cardinalities": [9, 9]})
    changes = {"operator": "o", "target": "t", "space": "s", "fingerprint": "g"}
    others = [key_of(**{name: value}) for name, value in changes.items()]
    others += [key_of((9, 8)), key_of(conditions={"threads": 2})]
    assert len({key.digest for key in (key_of(), *others)}) == 7
    assert key_of((9, 8)).family == key_of(fingerprint="g").family == key_of().family
    assert key_of(target="t").family != key_of().family


class Strange(RecordDatabase):
    """Answers with what no database may answer with."""

    place = "strange"

    def __init__(self, _options):
        pass

    def keys(self, like=None):
        odd = {**like.arguments, "more": 10**400}
        return [key_of(arguments=odd, fingerprint="g", space=like.space)]

    def records(self, key):
        return ["no record", None]

    def add(self, found):
        raise OSError("not today")


def test_a_strange_database_does_not_end_a_run(run, measured, plugin, monkeypatch):
    monkeypatch.delenv(STRICT)
    with capture_logs() as logs:
        result = run("one", records={"name": "odd"}, plugins=[plugin("record_databases", Strange)])
    assert len(measured("one")) == 20
    assert result.operators[0].tuned_seconds
    said = [one["problem"] for one in logs if one["event"] == "records_not_shared"]
    assert len(said) == 3
    assert said[-1] == "OSError: not today"
