"""The store gives back exactly what it was given and tells of whom, or says why it cannot."""

import contextlib
import sqlite3
import time

import attrs
import pytest
from chameleon_core._errors import RunFolderError
from chameleon_core._measurement import FailureKind, Measurement, Spending
from chameleon_core._store.records import RecordStore, StoredComparison
from chameleon_core._task import Task
from chameleon_core.plugin_api import Contender, StageRef
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TASK = Task(name="op", operator="conv2d", arguments={"shape": [1, 2]}, target="llvm", flop=2.0)

times = st.floats(1e-9, 1e3)
configs = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(tuple)
measurements = st.one_of(
    st.builds(
        Measurement,
        config=configs,
        seconds=st.lists(times, min_size=1, max_size=5).map(tuple),
        max_relative_error=st.none() | st.floats(0, 1),
        build_seconds=times,
        run_seconds=times,
    ),
    st.builds(
        Measurement,
        config=configs,
        failure=st.sampled_from(FailureKind),
        message=st.text(st.characters(codec="utf-8")),
    ),
)


def add(store, row, measurement, key=None):
    key = hash(measurement.config) if key is None else key
    store.add(row, key, measurement, knobs={"k": 1}, spending=Spending())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(measurements, max_size=6, unique_by=lambda m: m.config))
def test_measurements_come_back_as_they_were(tmp_path_factory, given_measurements):
    path = tmp_path_factory.mktemp("store") / "records.sqlite"
    with RecordStore(path) as store:
        row = store.add_task(TASK, "template", "f").id
        for key, measurement in enumerate(given_measurements):
            add(store, row, measurement, key)
    with RecordStore(path, read_only=True) as store:
        assert store.measurements(row) == given_measurements


def test_the_first_measurement_of_an_identity_stands(tmp_path):
    with RecordStore(tmp_path / "r.sqlite") as store:
        row = store.add_task(TASK, "template", "f").id
        first = Measurement(config=(1,), seconds=(1.0,))
        add(store, row, first)
        add(store, row, Measurement(config=(1,), seconds=(2.0,)))
        assert store.measurements(row) == [first]


def test_another_space_or_fingerprint_has_records_of_its_own(tmp_path):
    with RecordStore(tmp_path / "r.sqlite") as store:
        rows = [store.add_task(TASK, *space) for space in [("a", "f"), ("a", "g"), ("b", "f")]]
        assert len({stored.id for stored in rows}) == 3
        assert store.add_task(TASK, "a", "g") == rows[1]
        add(store, rows[0].id, Measurement(config=(1,), seconds=(1.0,)))
        assert store.measurements(rows[1].id) == []
        assert [stored.task for stored in store.tasks()] == [TASK] * 3


def test_a_task_of_an_earlier_version_gets_its_name_of_today(tmp_path):
    with RecordStore(tmp_path / "r.sqlite") as store:
        row = store.add_task(attrs.evolve(TASK, name="conv2d_0"), "a", "f")
        add(store, row.id, Measurement(config=(1,), seconds=(1.0,)))
        again = store.add_task(attrs.evolve(TASK, name="layer1.0.conv1 64x64"), "a", "f")
        assert (again.id, again.task.name) == (row.id, "layer1.0.conv1 64x64")
        assert len(store.measurements(again.id)) == 1


def test_a_wide_identity_is_kept_exactly(tmp_path):
    with RecordStore(tmp_path / "r.sqlite") as store:
        row = store.add_task(TASK, "a", "f").id
        for offset in range(2):
            add(store, row, Measurement(config=(offset,), seconds=(1.0,)), 10**40 + offset)
        assert len(store.measurements(row)) == 2


def test_facts_spending_and_comparisons(tmp_path):
    with RecordStore(tmp_path / "r.sqlite") as store:
        row = store.add_task(TASK, "a", "f").id
        assert store.fact("seconds") is None
        store.set_fact("seconds", 1.5)
        store.set_fact("seconds", 2.5)
        assert store.fact("seconds") == 2.5
        spending = Spending(search=1.0, measure=2.0).plus(model=4.0)
        store.set_spending(row, spending)
        assert store.tasks()[0].spending == spending
        assert spending.total == 7.0
        assert store.comparison(row) is None
        comparison = StoredComparison(
            contenders=(
                Contender(name="tuned", stage=StageRef(factory="m:C"), config=(1, 2)),
                Contender(
                    name="onednn", variant="nhwc", stage=StageRef(factory="m:D", options={"a": 1})
                ),
            ),
            measurements=(
                Measurement(config=(1, 2), seconds=(1.0, 2.0)),
                Measurement(config=(), failure=FailureKind.CRASH, message="died"),
            ),
        )
        store.set_comparison(row, comparison)
        assert store.comparison(row) == comparison


FULL = """
import resource, sys
from pathlib import Path
from chameleon_core._errors import RunFolderError
from chameleon_core._measurement import Measurement
from chameleon_core._measurement import Spending
from chameleon_core.api import RecordStore
from chameleon_core._task import Task

store = RecordStore(Path(sys.argv[1]))
task = Task(name="op", operator="o", arguments={}, target="t", flop=1.0)
row = store.add_task(task, "a", "f").id
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
saved = 0
try:
    while saved < 100_000:
        store.add(row, saved, Measurement(config=(saved,), seconds=(1.0,)),
                  knobs={}, spending=Spending())
        saved += 1
except RunFolderError as error:
    print(saved)
    print(error)
    print(error.hint)
"""


def test_a_full_disk_is_a_sentence_and_loses_nothing(run_python, tmp_path):
    path = tmp_path / "r.sqlite"
    saved, message, hint = run_python(FULL, path).strip().split("\n")
    assert "cannot write to" in message
    assert "continues" in hint
    with RecordStore(path) as store:
        stored = store.measurements(store.tasks()[0].id)
        assert [m.config[0] for m in stored] == list(range(int(saved)))
        assert len(stored) > 5
        add(store, store.tasks()[0].id, Measurement(config=(-1,), seconds=(1.0,)))


seconds = st.integers(0, 1000).map(float)
spendings = st.builds(
    Spending, search=seconds, model=seconds, measure=seconds, build=seconds, run=seconds
)


@given(spendings, spendings)
def test_a_sum_is_that_of_each_part(one, other):
    added = attrs.asdict(one + other)
    assert added == {
        name: value + getattr(other, name) for name, value in attrs.asdict(one).items()
    }


@given(spendings)
def test_building_and_running_are_part_of_measuring(spending):
    assert spending.total == spending.search + spending.model + spending.measure
    assert spending.plus(build=5.0, run=2.0).total == spending.total


@given(spendings)
def test_nothing_added_changes_nothing(spending):
    assert spending.plus() == spending + Spending() == spending


# -- what the store tells beside measurements ------------------------------------------------------


OTHER = attrs.evolve(TASK, name="other", operator="matmul")


def measured(index):
    return Measurement(config=(index, 7), seconds=(1.0 + index,))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "r.sqlite"


@pytest.fixture
def store(path):
    with RecordStore(path) as store:
        yield store


@pytest.fixture
def rows(store):
    """Two tasks that were measured by turns: 0, 2 and 4 of one, 1 and 3 of the other."""
    rows = [store.add_task(task, "template", "f").id for task in (TASK, OTHER)]
    for index in range(5):
        store.add(
            rows[index % 2],
            index,
            measured(index),
            knobs={"k": index},
            spending=Spending(search=float(index)),
            origin=None if index == 4 else f"origin {index}",
            measured_at=100.0 + index,
        )
    return rows


def test_each_task_has_its_own_in_order_of_arrival(store, rows):
    for row, indices in zip(rows, ([0, 2, 4], [1, 3]), strict=True):
        assert store.measurements(row) == [measured(index) for index in indices]
        assert store.decoded(row) == [{"k": index} for index in indices]
        assert store.measured_at(row) == [100.0 + index for index in indices]
        assert store.origins(row) == [
            None if index == 4 else f"origin {index}" for index in indices
        ]
    assert store.measured == 5
    assert store.last_measured_at == 104.0
    assert [stored.spending.search for stored in store.tasks()] == [4.0, 3.0]


def test_places_are_those_among_all_tasks(store, rows):
    first, second = (store.places(row) for row in rows)
    merged = sorted([*first, *second])
    assert merged[::2] == first
    assert merged[1::2] == second
    added = store.add(rows[1], 9, measured(9), knobs={}, spending=Spending())
    assert store.places(rows[1]) == [*second, added]
    assert added > merged[-1]


def test_what_is_measured_again_has_the_place_of_what_stands(store, rows):
    before = store.places(rows[0])
    assert store.add(rows[0], 0, measured(0), knobs={}, spending=Spending()) == before[0]
    assert store.places(rows[0]) == before


def test_knobs_of_a_configuration(store, rows):
    assert store.knobs(rows[0], (2, 7)) == {"k": 2}
    assert store.knobs(rows[1], (2, 7)) is None
    assert store.knobs(rows[0], (2, 8)) is None


def test_what_is_measured_now_is_said_to_be(store):
    row = store.add_task(TASK, "template", "f").id
    assert store.last_measured_at is None
    before = time.time()
    store.add(row, 0, measured(0), knobs={}, spending=Spending())
    assert before <= store.last_measured_at <= time.time()


def test_spending_is_kept_of_one_task_alone(store, rows):
    store.set_spending(rows[0], Spending(measure=9.0))
    assert [stored.spending for stored in store.tasks()] == [
        Spending(measure=9.0),
        Spending(search=3.0),
    ]


@pytest.mark.parametrize("but", [None, "kept"])
def test_forgetting_leaves_one_fact_at_most(store, rows, but):
    store.set_fact("kept", {"a": [1]})
    store.set_fact("lost", 2)
    store.forget(but=but)
    assert store.tasks() == []
    assert store.measured == 0
    assert store.measurements(rows[0]) == []
    assert store.fact("lost") is None
    assert store.fact("kept") == (None if but is None else {"a": [1]})


def test_a_transaction_is_seen_by_others_at_its_end(store, rows, path):
    with RecordStore(path, read_only=True) as reader:
        with store.transaction():
            for index in (5, 6):
                store.add(rows[0], index, measured(index), knobs={}, spending=Spending())
            assert store.measured == 7
            assert reader.measured == 5
        assert reader.measured == 7


def test_a_closed_file_cannot_be_read(store, path):
    store.close()
    with pytest.raises(RunFolderError, match=f"cannot read {path}"):
        store.tasks()


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("INSERT INTO facts VALUES ('known', '{')", lambda store, _: store.fact("known")),
        ("UPDATE tasks SET task = '[]'", lambda store, _: store.tasks()),
        ("UPDATE tasks SET task = '{}'", lambda store, _: store.tasks()),
        ("UPDATE measurements SET seconds = 'x'", lambda store, row: store.measurements(row)),
        ("UPDATE measurements SET failure = 'x'", lambda store, row: store.measurements(row)),
        ("UPDATE measurements SET knobs = x'ff'", lambda store, row: store.decoded(row)),
    ],
)
def test_what_no_run_writes_is_a_sentence(store, rows, path, statement, read):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(RunFolderError, match="holds what no run writes") as caught:
        read(store, rows[0])
    assert "restore" in caught.value.hint
