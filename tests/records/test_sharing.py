"""What a run takes from databases of anybody's kind, what it adds, and what it does not believe."""

import math
from operator import attrgetter

import attrs
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._fallbacks import STRICT
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._plugins.records import RecordDatabaseRecord
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import RecordDatabase
from structlog.testing import capture_logs
from synthetic import (
    RunnerOptions,
    SyntheticRunner,
    measurements_in,
    plugin_of,
    record_of,
    run_synthetic,
    synthetic_document,
    synthetic_registry,
)


@attrs.frozen(kw_only=True)
class MemoryOptions:
    """A place, and what is wrong with it: a method that raises, or 'read-only'."""

    at: str = "memory"
    wrong: str = ""


class Memory(RecordDatabase):
    """Records in this process, by the name of their place."""

    places = {}
    closed = []

    def __init__(self, options):
        self._wrong = options.wrong
        self._may("open")
        self.place = options.at
        self.writable = options.wrong != "read-only"
        self._kept = self.places.setdefault(options.at, {})

    def _may(self, name):
        if name == self._wrong:
            raise ConfigError(f"may not {name}", hint="ask another")
        if self._wrong == f"{name} oddly":
            raise RuntimeError("of its own")

    def keys(self, like=None):
        self._may("keys")
        return [key for key in self._kept if like is None or key.family == like.family]

    def records(self, key):
        self._may("records")
        return list(self._kept.get(key, {}).values())

    def add(self, found):
        self._may("add")
        for key, records in found.items():
            kept = self._kept.setdefault(key, {})
            for record in records:
                config = record.measurement.config
                kept[config] = min(record, kept.get(config, record), key=attrgetter("rank"))
        return sum(map(len, found.values()))

    def close(self):
        self.closed.append(self.place)


class Devices(SyntheticRunner):
    """A runner whose conditions a test sets, and which loses a device now and then."""

    said = None
    losing = False

    def conditions(self):
        return self.said

    def _outcome(self, task, config):
        if self.losing and sum(config) % 3 == 0:
            return Measurement(config=config, failure=FailureKind.DEVICE_LOST, message="gone")
        return super()._outcome(task, config)


PLUGIN = plugin_of(
    record_databases=[
        record_of(Memory, MemoryOptions, kind=RecordDatabaseRecord, place_option="at")
    ],
    runners=[record_of(Devices, RunnerOptions)],
)


@pytest.fixture(autouse=True)
def _anew(monkeypatch):
    monkeypatch.setattr(Memory, "places", {})
    monkeypatch.setattr(Memory, "closed", [])


@pytest.fixture
def run(tmp_path):
    """Runs a pipeline in ``tmp_path/name``; the lines that it measured, and the log's events."""

    def made(name, *, fresh=False, runner="synthetic", operators=((9, 9),), **more):
        log = tmp_path / f"{name}.log"
        log.unlink(missing_ok=True)
        more = {"records": "memory", "budget": {"measurements": 8, "batch_size": 4}, **more}
        document = synthetic_document(tmp_path / name, operators=operators, **more)
        document["runner"] = {"name": runner, "log": str(log)}
        assert not synthetic_registry(PLUGIN).errors
        with capture_logs() as logs:
            result = run_synthetic(document, PLUGIN, fresh=fresh)
        lines = log.read_text().splitlines() if log.exists() else []
        return result, [line for line in lines if not line.endswith("compare")], logs

    return made


def problems(logs):
    return [(one["database"], one["problem"]) for one in logs if one["event"].endswith("shared")]


def only_key(name="memory"):
    (key,) = Memory.places[name]
    return key


def record(config, seconds=(1e-3,), **more):
    knobs = {f"knob{place}": index for place, index in enumerate(config)}
    given = {"knobs": knobs, "measured_at": 1.0, **more}
    return RecordDatabase.Record(measurement=Measurement(config=config, seconds=seconds), **given)


def test_what_one_run_adds_the_next_does_not_measure(run):
    first, measured, logs = run("one", seed=1)
    assert len(measured) == 8
    assert [one["records"] for one in logs if one["event"] == "records_added"] == [8]
    second, again, logs = run("two", seed=2)
    assert again == []
    assert second.operators[0].config == first.operators[0].config
    assert second.operators[0].origins == {"record": 8}
    (taken,) = [one for one in logs if one["event"] == "records_taken"]
    assert (taken["measurements"], taken["tasks"], taken["of"]) == (8, 1, 1)
    assert taken["databases"] == ["memory"]
    assert Memory.closed == ["memory", "memory"]


def test_nothing_is_taken_afresh_and_all_is_added(run):
    run("one", seed=1)
    _, measured, _ = run("one", seed=2, fresh=True)
    assert len(measured) == 8
    assert len(Memory.places["memory"][only_key()]) > 8


def test_a_folder_begun_without_databases_takes_nothing(run):
    run("one", seed=1)
    run("two", seed=2, records=None, budget={"measurements": 4, "batch_size": 4})
    result, measured, _ = run("two", seed=2)
    assert len(measured) == 4
    assert "record" not in result.operators[0].origins
    # What it measured before it had databases is added all the same.
    assert len(Memory.places["memory"][only_key()]) > 8


def test_the_best_of_the_nearest_shape_comes_first(run, tmp_path):
    run("one", operators=((9, 9),), budget={"measurements": 60, "batch_size": 4})
    run("far", operators=((90, 90),), budget={"measurements": 12, "batch_size": 4})
    best = min(Memory.places["memory"][_key_of((9, 9))].values(), key=attrgetter("rank"))
    result, _, _ = run("two", operators=((9, 8),), budget={"measurements": 4, "batch_size": 4})
    assert "suggestion" in result.operators[0].origins
    with RecordStore.of_run(tmp_path / "two") as store:
        (suggested,) = store.fact("records")["suggested"].values()
    assert tuple(suggested[-1]) == best.measurement.config


def _key_of(cardinalities):
    (key,) = (
        key
        for key in Memory.places["memory"]
        if tuple(key.arguments["cardinalities"]) == cardinalities
    )
    return key


@pytest.mark.full
@pytest.mark.parametrize(
    "wrong",
    [
        record((9, 0)),
        record((-1, 0)),
        record((1,)),
        record((2**31 - 1, 0)),
        record((1, 2, 0)),
        record((1, 2), seconds=(0.0,)),
        record((1, 2), seconds=(math.inf,)),
        record((1, 2), measured_at=math.nan),
        record((1, 2), spent_seconds=-1.0),
        record((1, 2), spent_seconds=math.inf),
        record((1, 2), knobs={"knob0": 1, "knob1": 3}),
        record((1, 2), knobs={"knob0": 1}),
    ],
)
def test_a_record_that_cannot_be_is_left_out(run, wrong):
    run("one", budget={"measurements": 1})
    key = only_key()
    Memory.places["memory"][key] = {0: wrong, 1: record((4, 4))}
    result, measured, logs = run("two")
    assert result.operators[0].origins["record"] == 1
    assert len(measured) == 7
    (left_out,) = [one["records"] for one in logs if one["event"].endswith("design_space")]
    assert left_out == 1


def test_of_two_databases_the_better_record_counts(run, tmp_path):
    run("one", budget={"measurements": 1})
    key = only_key()
    Memory.places["memory"] = {key: {0: record((4, 4), (3e-3,)), 1: record((1, 1), (5e-3,))}}
    Memory.places["other"] = {key: {0: record((4, 4), (2e-3,)), 1: record((1, 1), (6e-3,))}}
    run("two", records=["memory", "other"], budget={"measurements": 2})
    (measured,) = measurements_in(tmp_path / "two").values()
    assert {m.config: m.seconds for m in measured} == {(4, 4): (2e-3,), (1, 1): (5e-3,)}


def test_records_are_taken_as_a_whole_or_not_at_all(run, monkeypatch):
    run("one", operators=((9, 9), (9, 8)))
    add, added = RecordStore.add, []

    def interrupted(self, *words, **more):
        added.append(words)
        if len(added) == 12:
            raise KeyboardInterrupt
        return add(self, *words, **more)

    monkeypatch.setattr(RecordStore, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("two", operators=((9, 9), (9, 8)))
    result, measured, _ = run("two", operators=((9, 9), (9, 8)))
    assert measured == []
    assert [operator.origins for operator in result.operators] == [{"record": 8}] * 2


def test_seconds_that_records_took_are_spent(run):
    run("one", budget={"measurements": 3})
    kept = Memory.places["memory"][only_key()]
    for config, one in kept.items():
        kept[config] = attrs.evolve(one, spent_seconds=100.0)
    _, measured, _ = run("two", budget={"wall_time": "250s", "batch_size": 4})
    assert measured == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("open", "may not open"),
        ("records", "may not records"),
        ("keys", "may not keys"),
        ("add", "may not add"),
        ("records oddly", "RuntimeError: of its own"),
    ],
)
def test_a_database_that_fails_is_named_and_the_run_goes_on(run, wrong, said, monkeypatch):
    monkeypatch.delenv(STRICT)
    result, measured, logs = run("one", records={"name": "memory", "wrong": wrong})
    assert len(measured) == 8
    assert result.operators[0].tuned_seconds
    assert [text for _, text in problems(logs)] == [said]
    unexpected = [one.get("exc_info") for one in logs if one["event"].endswith("shared")]
    assert [error is not None for error in unexpected] == [wrong.endswith("oddly")]


def test_an_unexpected_error_of_a_database_is_raised_in_tests(run):
    with pytest.raises(RuntimeError, match="of its own"):
        run("one", records={"name": "memory", "wrong": "records oddly"})


def test_what_cannot_be_written_is_read_and_the_next_is_added_to(run):
    run("one", seed=1)
    before = dict(Memory.places["memory"][only_key()])
    closed = {"name": "memory", "wrong": "read-only"}
    budget = {"measurements": 12, "batch_size": 4}
    _, measured, logs = run("two", records=[closed, "other"], budget=budget)
    assert len(measured) == 4
    assert Memory.places["memory"][only_key()] == before
    assert len(Memory.places["other"][only_key("other")]) == 4
    _, _, logs = run("three", records=closed, budget={"measurements": 16, "batch_size": 4})
    assert [one["databases"] for one in logs if "writable" in one["event"]] == [["memory"]]


def test_a_folder_of_mixed_conditions_shares_nothing(run, monkeypatch):
    monkeypatch.setattr(Devices, "said", {"threads": 1})
    run("one", runner="devices", budget={"measurements": 4, "batch_size": 4})
    assert len(Memory.places["memory"][only_key()]) == 4
    monkeypatch.setattr(Devices, "said", {"threads": 2})
    _, measured, logs = run("one", runner="devices")
    assert len(measured) == 4
    assert "sharing_switched_off" in [one["event"] for one in logs]
    assert len(Memory.places["memory"][only_key()]) == 4


def test_what_a_lost_device_failed_at_is_not_added(run, monkeypatch):
    monkeypatch.setattr(Devices, "said", {"threads": 1})
    monkeypatch.setattr(Devices, "losing", True)
    result, _, _ = run("one", runner="devices", budget={"measurements": 30, "batch_size": 4})
    kept = Memory.places["memory"][only_key()]
    assert kept
    assert all(sum(config) % 3 for config in kept)
    assert len(kept) < result.operators[0].measurements
