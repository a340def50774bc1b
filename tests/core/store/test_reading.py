"""What the store tells beside measurements, and of whom."""

import contextlib
import sqlite3
import time

import attrs
import pytest
from chameleon_core.errors import RunFolderError
from chameleon_core.measurement import Measurement, Spending
from chameleon_core.store import RecordStore
from chameleon_core.task import Task

TASK = Task(name="op", operator="conv2d", arguments={"shape": [1, 2]}, target="llvm", flop=2.0)
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
