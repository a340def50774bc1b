"""Data sets and plans of synthetic stages: no code, no hardware, milliseconds."""

import json
from typing import ClassVar

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._task import Task
from chameleon_core.plugin_api import OperatorRecord, hookimpl
from chameleon_one_shot import hooks
from chameleon_one_shot._dataset.tasks import DatasetTask
from synthetic import synthetic_registry


@attrs.frozen(kw_only=True)
class GridArguments:
    """An operator whose knobs have the cardinalities that it names; seven is refused."""

    kind: ClassVar[str] = "synthetic"

    cardinalities: tuple[int, ...]
    failing: int = 0

    def task(self, name, target):
        if 7 in self.cardinalities:
            raise ConfigError("seven choices are too many")
        arguments = {"cardinalities": list(self.cardinalities), "failing": self.failing}
        flop = float(1000 * np.prod(self.cardinalities))
        return Task(name=name, operator=self.kind, arguments=arguments, target=target, flop=flop)


class GridOperator:
    @hookimpl
    def chameleon_operators(self):
        yield OperatorRecord(summary="A grid", arguments=GridArguments, factory="nowhere:Grid")
        yield OperatorRecord(name="code", summary="Code", factory="nowhere:Code", carries_code=True)


NETWORK = [[2 * n + 4, 3 * n + 4] for n in range(12)]


def plan_document(folder, **more):
    """A plan of synthetic stages."""
    return {
        "networks": [{"synthetic": {"operators": NETWORK}}],
        "hold_out": [{"synthetic": {"operators": [[20, 30]]}}],
        "target": "nowhere",
        "space": "synthetic",
        "runner": {"name": "synthetic", "log": str(folder / "log")},
        "tasks": 6,
        "measurements": 10,
        "batch_size": 5,
        "tasks_per_run": 2,
        "output": str(folder / "data"),
        "searches": [
            {
                "explorer": "synthetic",
                "cost_model": "synthetic",
                "sampler": "synthetic",
                "synthesizer": "synthetic",
            }
        ],
        **more,
    }


@pytest.fixture
def registry():
    return synthetic_registry(hooks, GridOperator())


@pytest.fixture
def plugins(install, registry):
    """The registry in place of what is installed."""
    return install(registry)


@pytest.fixture
def plan_file(tmp_path):
    """Writes a plan of synthetic stages."""

    def write(**more):
        file = tmp_path / "plan.yaml"
        file.write_text(json.dumps(plan_document(tmp_path, **more)))
        return file

    return write


@pytest.fixture
def dataset_task():
    """Makes a task of a data set with candidates in their order, None for a failure."""

    def make(*seconds, number=0, **more):
        count = len(seconds)
        task = Task(name="t", operator="grid", arguments={"number": number}, target="{}", flop=2.0)
        values = {
            "task": task,
            "device": {"kind": "llvm", "cores": 2},
            "threads": 2,
            "space": "auto",
            "space_options": {"prune": True},
            "fingerprint": "f",
            "versions": {"apache-tvm": "1"},
            "source": "here",
            "configs": np.arange(2 * count, dtype=np.int32).reshape(count, 2),
            "choices": [{"tile": [row, 1], "layout": "a"} for row in range(count)],
            "seconds": np.array([np.inf if second is None else second for second in seconds]),
            "failures": ["crash" if second is None else None for second in seconds],
            "measured_at": np.arange(count, dtype=np.float64),
        }
        return DatasetTask(**{**values, **more})

    return make
