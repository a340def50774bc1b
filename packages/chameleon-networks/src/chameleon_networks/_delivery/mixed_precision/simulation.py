"""Simulates a network with reduced dtypes in a child process, to find the errors of its outputs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import structlog
from chameleon_core.plugin_api import Arrays, ChameleonError
from chameleon_system.api import Message

from chameleon_networks._evaluation.messages import describe_network, read_arrays
from chameleon_networks._evaluation.processes import RUN_SECONDS, WorkerProcess
from chameleon_networks._evaluation.verify import Sample
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._quantize.data_flow import DataFlow
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import Affine, ranges_from_json, ranges_to_json
from chameleon_networks._quantize.weights import Means

log = structlog.get_logger()

_MODULE = "chameleon_networks._quantize.simulation_process"

Types = Mapping[int, str]


class Simulation(WorkerProcess):
    """A process that simulates dtypes; an error is max |difference| / max |output|.

    Attributes:
        during: A function that returns a context manager, which counts the seconds. The context is
            entered while the process works.
    """

    def __init__(
        self,
        network: ImportedNetwork,
        module: Any,
        fusions: Sequence[FusionGroup],
        target: str,
        threads: int,
    ) -> None:
        names = list(DataFlow(module, fusions).names.values())
        request = {"target": target, "names": names, **describe_network(network)}
        super().__init__("the simulated network", request, module=_MODULE, threads=threads)
        self._fusions = fusions
        self.during: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._samples = 0
        self._known: dict[frozenset[tuple[int, str]], float] = {}
        self._places = frozenset(self.answer["places"])

    def _ask(self, request: Message, limit: float = RUN_SECONDS) -> Message:
        with self.during():
            return super()._ask(request, limit)

    def calibrated(self, batches: Iterable[Arrays]) -> tuple[Mapping[str, Affine], Means]:
        """The range of each int8 input, and its channel means for bias correction."""
        self._known.clear()
        for batch in batches:
            self._ask({"do": "observe", "inputs": self._written(batch)})
        file = self._file("means")
        reply = self._ask({"do": "calibrate", "means": str(file)})
        ranges, method = ranges_from_json(reply["ranges"]), reply["method"]
        log.info("ranges_calibrated", tensors=len(ranges), method=method, errors=reply["errors"])
        return ranges, dict(zip(reply["means"], read_arrays(file), strict=True))

    def restore(self, ranges: Mapping[str, Affine], means: Means = MappingProxyType({})) -> None:
        """Use ranges and means of an earlier calibration."""
        self._known.clear()
        known = {"ranges": ranges_to_json(ranges), "names": list(means)}
        self._ask({"do": "recall", **known, "inputs": self._written(list(means.values()))})

    def sample(self, samples: Iterable[Sample]) -> None:
        """Add inputs on which errors are measured."""
        self._known.clear()
        for sample in samples:
            written = self._written(sample.inputs)
            self._ask({"do": "sample", "inputs": written, "kept": list(sample.cuts)})
            self._samples += 1

    def errors_alone(self, kinds: Iterable[str]) -> dict[tuple[int, str], float]:
        """The error, by (operator, dtype), if this operator alone has the reduced dtype."""
        return {
            (position, kind): self.error_of({position: kind})
            for kind in kinds
            for position in find_eligible(self._fusions, kind).indices
        }

    def error_of(self, types: Types) -> float:
        """The error for dtypes by operator index; infinite if they cannot be simulated."""
        if not self._samples:
            raise ChameleonError(
                "there are no inputs to measure errors on", hint="Give some to `sample` first."
            )
        if not self._places.issuperset(types):
            return math.inf
        key = frozenset(types.items())
        if key not in self._known:
            answer = self._ask({"do": "error", "types": _as_json(types)})
            self._known[key] = float(answer["value"])
        return self._known[key]

    def outputs(self, inputs: Arrays, types: Types) -> Arrays:
        """Compute the network's outputs for a choice of dtypes."""
        file = self._file("outputs")
        request = {"inputs": self._written(inputs), "outputs": str(file), "types": _as_json(types)}
        self._ask({"do": "outputs", **request})
        return read_arrays(file)


def _as_json(types: Types) -> dict[str, str]:
    return {str(position): kind for position, kind in types.items()}
