"""Synthetic pipelines: no code, no hardware, milliseconds."""

from __future__ import annotations

import pytest
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import NoOptions, PluginRecord, hookimpl
from chameleon_core.run_folder import read_store
from chameleon_core.testing.synthetic import synthetic_document, synthetic_registry


@pytest.fixture
def pipeline(tmp_path):
    """Makes pipelines that run in ``tmp_path/run`` and log to ``tmp_path/log``."""

    def make(*, plugins=(), output=tmp_path / "run", runner=None, **more):
        runner = {"log": str(tmp_path / "log"), **(runner or {})}
        document = synthetic_document(output, runner=runner, **more)
        return from_dict(document, registry=synthetic_registry(*plugins))

    return make


@pytest.fixture
def log_lines(tmp_path):
    """Lines the synthetic runner has logged so far."""

    def lines():
        log = tmp_path / "log"
        return log.read_text().splitlines() if log.exists() else []

    return lines


@pytest.fixture
def records():
    """All measurements of a run folder: task name to config to measurement."""

    def read(folder):
        with read_store(folder) as store:
            return {
                stored.task.name: {m.config: m for m in store.measurements(stored.id)}
                for stored in store.tasks()
            }

    return read


@pytest.fixture
def plugin():
    """Makes a plugin named ``odd`` with one implementation, a class of a test module."""

    def make(kind, factory, options=NoOptions):
        def register(self):
            yield PluginRecord(
                name="odd",
                summary="odd",
                options=options,
                factory=f"{factory.__module__}:{factory.__qualname__}",
            )

        hook = f"chameleon_{kind}"
        register.__name__ = hook
        return type("Odd", (), {hook: hookimpl(register)})()

    return make


@pytest.fixture
def outcome():
    """What two runs must agree on: everything but seconds spent and the folder."""

    def of(result):
        volatile = {"wall_seconds", "spent_seconds"}
        return [
            {key: value for key, value in operator.to_json().items() if key not in volatile}
            for operator in result.operators
        ]

    return of
