"""The store gives back exactly what it was given, or says why it cannot."""

import attrs
from chameleon_core.measurement import FailureKind, Measurement, Spending
from chameleon_core.stages import Contender, StageRef
from chameleon_core.store import RecordStore, StoredComparison
from chameleon_core.task import Task
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
from chameleon_core.errors import RunFolderError
from chameleon_core.measurement import Measurement
from chameleon_core.measurement import Spending
from chameleon_core.store import RecordStore
from chameleon_core.task import Task

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
