"""Synthetic runs with record databases: no code, no hardware, milliseconds."""

import chameleon_records.hooks
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core.plugin_api import RecordDatabase
from hypothesis import strategies as st
from synthetic import run_synthetic, synthetic_document


def synthetic_run(
    folder,
    *,
    operators=((50, 50),),
    fresh=False,
    runner_plugin=None,
    runner_name="synthetic",
    plugins=(),
    **more,
):
    """A run in a folder of its own, which logs what it measures beside it."""
    runner = {"name": runner_name, "log": str(folder.with_name(f"{folder.name}.log"))}
    document = synthetic_document(folder, operators=operators, runner=runner, **more)
    plugins = [chameleon_records.hooks, *plugins]
    if runner_plugin is not None:
        document["runner"] = "odd"
        plugins.append(runner_plugin)
    return run_synthetic(document, *plugins, fresh=fresh)


def measured_lines(folder):
    log = folder.with_name(f"{folder.name}.log")
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if not line.endswith("compare")]


def key_of(cardinalities=(9, 9), **more):
    values = {
        "operator": "synthetic",
        "arguments": {"cardinalities": list(cardinalities), "failing": 0},
        "target": "nowhere",
        "space": "synthetic",
        "fingerprint": "f",
        "conditions": {"threads": 1},
        **more,
    }
    return RecordDatabase.Key(**values)


def record_of(config, seconds=(1e-3,), measured_at=1.0, **more):
    return RecordDatabase.Record(
        measurement=Measurement(config=tuple(config), seconds=tuple(seconds), **more),
        knobs={f"knob{place}": index for place, index in enumerate(config)},
        measured_at=measured_at,
    )


def contents(database):
    """All of a database, to be compared."""
    return {
        key.digest: {one.measurement.config: one for one in database.records(key)}
        for key in database.keys()  # noqa: SIM118 - no mapping
    }


keys = st.sampled_from([key_of((9, 9)), key_of((9, 8)), key_of((9, 9), conditions={})])
records = st.builds(
    lambda config, seconds, failure, measured_at: record_of(
        config,
        () if failure else seconds,
        measured_at,
        failure=failure,
        message="why\x1b[31m" if failure else "",
    ),
    st.tuples(st.integers(0, 2), st.integers(0, 1)),
    st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=3).map(tuple),
    st.none() | st.sampled_from([FailureKind.CRASH, FailureKind.INVALID]),
    st.sampled_from([1.0, 2.0]),
)
found = st.dictionaries(keys, st.lists(records, max_size=4), max_size=3)
