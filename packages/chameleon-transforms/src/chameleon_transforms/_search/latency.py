"""The times of transformed networks' operators. Each distinct operator is measured once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.api import (
    Interruption,
    RecordStore,
    ResolvedPipeline,
    RunFile,
    TaskSource,
    from_dict,
    run_pipeline,
    to_json,
)
from chameleon_tvm.api import CONVOLUTIONS, OperatorsOptions

from chameleon_transforms._nest.tasks import Spec

log = structlog.get_logger()

_DROPPED = ("precision", "transform", "require", "warm_start", "baselines")
"""Keys of a pipeline that have no effect on single operators."""


def _key(operator: str, arguments: Mapping[str, Any]) -> str:
    """A key of an operator without epilogue and errors; the order of arguments does not matter."""
    fields = attrs.fields_dict(CONVOLUTIONS[operator])
    values = {
        name: value
        for name, value in arguments.items()
        if not (name in fields and fields[name].metadata.keys() & {"epilogue", "error"})
    }
    return json.dumps([operator, values], sort_keys=True)


class OperatorTimes:
    """Measures operators, and keeps their seconds from earlier runs and from new runs."""

    def __init__(  # noqa: PLR0917 - called by name
        self,
        pipeline: ResolvedPipeline,
        folder: Path,
        measurements: int,
        records: Iterable[Path] = (),
        listeners: Sequence[object] = (),
        interruption: Interruption | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._folder = folder
        self._measurements = measurements
        self._listeners = listeners
        self._interruption = interruption
        self.target = TaskSource(pipeline).target()
        self._seconds: dict[str, float] = {}
        self._keys: dict[Spec, str] = {}
        for record in (*records, *self._runs()):
            self._read(record)

    def _runs(self) -> list[Path]:
        return sorted(path.parent for path in self._folder.glob(f"*/{RunFile.RECORDS}"))

    def key(self, spec: Spec) -> str:
        """The key of an operator's time, which ignores its name and epilogue."""
        if spec not in self._keys:
            task = spec.task("operator", self.target)
            self._keys[spec] = _key(task.operator, task.arguments)
        return self._keys[spec]

    def seconds(self, spec: Spec) -> float | None:
        """The best known time in seconds; infinite if all measurements failed, None without any."""
        return self._seconds.get(self.key(spec))

    def measure(self, specs: Iterable[Spec]) -> int:
        """Tune each operator that has no known time, and return how many these are."""
        unknown: dict[str, Spec] = {}
        for spec in specs:
            if self.seconds(spec) is None:
                unknown.setdefault(self.key(spec), spec)
        if not unknown:
            return 0
        folder = self._folder / f"{len(self._runs()):03d}"
        named = tuple(
            attrs.evolve(spec, name=f"operator_{number}")
            for number, spec in enumerate(unknown.values())
        )
        rest = {key: item for key, item in self._pipeline.document.items() if key not in _DROPPED}
        document = {
            **rest,
            "model": {"operators": to_json(OperatorsOptions(operators=named))["operators"]},
            "baselines": [],
            "budget": {"measurements": self._measurements},
            "output": str(folder),
        }
        log.info("measuring_operators", operators=len(named), folder=str(folder))
        run_pipeline(
            from_dict(document), listeners=self._listeners, interruption=self._interruption
        )
        self._read(folder)
        for key in unknown:
            # All configurations of the operator failed, so no network with it can be recommended.
            self._seconds.setdefault(key, float("inf"))
        return len(named)

    def _read(self, folder: Path) -> None:
        """Add the best times of all convolutions that a run measured on this target."""
        with RecordStore.of_run(folder) as store:
            for stored in store.tasks():
                task = stored.task
                if task.target != self.target or task.operator not in CONVOLUTIONS:
                    continue
                measurements = store.measurements(stored.id)
                costs = [measured.cost for measured in measurements if measured.ok]
                if costs:
                    key = _key(task.operator, task.arguments)
                    self._seconds[key] = min(self._seconds.get(key, float("inf")), *costs)
