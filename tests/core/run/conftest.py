"""Synthetic pipelines: no code, no hardware, milliseconds."""

import pytest
from synthetic import ModelOptions, measurements_in


@pytest.fixture
def records():
    """All measurements of a run folder: task name to config to measurement."""

    def read(folder):
        stored = measurements_in(folder).items()
        return {name: {m.config: m for m in measurements} for name, measurements in stored}

    return read


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


@pytest.fixture
def modelled(pipeline, plugin):
    """Makes pipelines with a frontend that a test brings, and one operator or others."""

    def make(frontend, operators=((3,),), *, plugins=(), **more):
        model = {"odd": {"operators": list(map(list, operators))}}
        plugins = [plugin("frontends", frontend, ModelOptions), *plugins]
        return pipeline(plugins=plugins, **{"model": model, **more})

    return make
