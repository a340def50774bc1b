"""How long the operators of transformed networks take: each distinct one is measured once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.run import run_pipeline
from chameleon_core.loop.start.tasks import target_of
from chameleon_core.pipeline.jsonable import to_json
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.run_folder import RECORDS, read_store
from chameleon_tvm.operators.convolution_specs import CONVOLUTIONS
from chameleon_tvm.operators.frontend_options import OperatorsOptions

from chameleon_transforms.nest.tasks import Spec

log = structlog.get_logger()

_DROPPED = ("precision", "transform", "require", "warm_start", "baselines")
"""Keys of a pipeline that say nothing of single operators."""


def _key(operator: str, arguments: Mapping[str, Any]) -> str:
    """Identity of an operator whatever is done to its sums, and in whatever order it is read."""
    fields = attrs.fields_dict(CONVOLUTIONS[operator])
    values = {
        name: value
        for name, value in arguments.items()
        if not (name in fields and fields[name].metadata.get("epilogue"))
    }
    return json.dumps([operator, values], sort_keys=True)


class OperatorTimes:
    """Seconds of operators, from earlier runs and from runs of its own.

    Args:
        pipeline: its target, stages and runner measure.
        folder: where runs of operators go; those that are there are read.
        measurements: configurations measured of each operator.
        records: folders of other runs.
        listeners: get the runs' events.
        interruption: may ask a run to stop.
    """

    def __init__(  # noqa: PLR0917 - one caller, by name
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
        self.target = target_of(pipeline)
        self._seconds: dict[str, float] = {}
        self._keys: dict[Spec, str] = {}
        for record in (*records, *self._runs()):
            self._read(record)

    def _runs(self) -> list[Path]:
        return sorted(path.parent for path in self._folder.glob(f"*/{RECORDS}"))

    def key(self, spec: Spec) -> str:
        """Identity of an operator."""
        if spec not in self._keys:
            task = spec.task("operator", self.target)
            self._keys[spec] = _key(task.operator, task.arguments)
        return self._keys[spec]

    def seconds(self, spec: Spec) -> float | None:
        """The best time of an operator, infinite if it has failed, None if it is unknown."""
        return self._seconds.get(self.key(spec))

    def measure(self, specs: Iterable[Spec]) -> int:
        """Tune the operators that are not known yet, each by itself; returns how many those were.

        Raises:
            RunInterrupted: it was asked to stop; what was measured is kept.
        """
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
        log.info("operators_are_measured", operators=len(named), folder=str(folder))
        run_pipeline(
            from_dict(document), listeners=self._listeners, interruption=self._interruption
        )
        self._read(folder)
        for key in unknown:
            # All its configurations failed: no network with it can be recommended.
            self._seconds.setdefault(key, float("inf"))
        return len(named)

    def _read(self, folder: Path) -> None:
        """Take over the best measurement of every convolution of a run on this target."""
        with read_store(folder) as store:
            for stored in store.tasks():
                task = stored.task
                if task.target != self.target or task.operator not in CONVOLUTIONS:
                    continue
                measurements = store.measurements(stored.id)
                costs = [measured.cost for measured in measurements if measured.ok]
                if costs:
                    key = _key(task.operator, task.arguments)
                    self._seconds[key] = min(self._seconds.get(key, float("inf")), *costs)
