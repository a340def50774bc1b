"""The cost of types: errors of a network with any types of its chains."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays
from chameleon_system.processes.conversation import Message

from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.quantize.eligibility import eligible
from chameleon_networks.quantize.ranges import Affine
from chameleon_networks.quantize.reads import Network
from chameleon_networks.quantize.weights import Means
from chameleon_networks.running.processes import RUN_SECONDS, AskedProcess
from chameleon_networks.running.requests import read_arrays, request_of
from chameleon_networks.running.samples import Sample

log = structlog.get_logger()

_MODULE = "chameleon_networks.quantize.simulating"

Types = Mapping[int, str]


class Simulation(AskedProcess):
    """A network simulated in a process of its own, which compiles it once.

    Errors are the largest |difference| of all samples over the largest |output| of all samples, as
    ``verify.magnitudes`` has it.

    Args:
        network: as its framework has it.
        module: its prepared module, in the layout in use.
        chains: its chains.
        target: the resolved target, of this machine.
        threads: that it computes with.

    Attributes:
        ranges: of tensors by name, when it has been calibrated.
        means: of channels of what chains read, by name, with which ``with_types`` corrects biases;
            none if that made the error no less.
        method: that found the ranges.
        during: a context in which the process is at work; it counts the seconds.

    Raises:
        ConfigError: the process reads another network.
        ChameleonError: it ended.
    """

    def __init__(
        self,
        network: ImportedNetwork,
        module: Any,
        chains: Sequence[FusedOperator],
        target: str,
        threads: int,
    ) -> None:
        names = list(Network(module, chains).names.values())
        request = {"target": target, "names": names, **request_of(network)}
        super().__init__("the simulated network", request, module=_MODULE, threads=threads)
        self._chains = chains
        self.ranges: dict[str, Affine] = {}
        self.means: Means = {}
        self.method = ""
        self.during: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._samples = 0
        self._known: dict[frozenset[tuple[int, str]], float] = {}
        self._places = frozenset(self._ask({"do": "describe"})["places"])

    def _ask(self, request: Message, limit: float = RUN_SECONDS) -> Message:
        with self.during():
            return super()._ask(request, limit)

    def calibrated(self, batches: Iterable[Arrays]) -> Mapping[str, Affine]:
        """Ranges of the tensors that chains read in int8.

        Args:
            batches: inputs, one at a time.

        Raises:
            ConfigError: a batch makes something in the network infinite or not a number.
        """
        self._known.clear()
        for batch in batches:
            self._ask({"do": "observe", "inputs": self._written(batch)})
        file = self._file("means")
        reply = self._ask({"do": "calibrate", "means": str(file)})
        self.means = dict(zip(reply["means"], read_arrays(file), strict=True))
        self.method = reply["method"]
        self.ranges = {
            name: Affine(scale=scale, zero_point=zero)
            for name, (scale, zero) in reply["ranges"].items()
        }
        log.info("calibrated", tensors=len(self.ranges), method=self.method, errors=reply["errors"])
        return self.ranges

    def restore(self, ranges: Mapping[str, Affine], means: Means = MappingProxyType({})) -> None:
        """Take ranges and means that were found before instead of calibrating."""
        self._known.clear()
        self.ranges, self.means = dict(ranges), dict(means)
        pairs = {name: [grid.scale, grid.zero_point] for name, grid in ranges.items()}
        inputs = self._written(list(means.values()))
        self._ask({"do": "recall", "ranges": pairs, "names": list(means), "inputs": inputs})

    def sample(self, samples: Iterable[Sample]) -> None:
        """Add what errors are measured on."""
        self._known.clear()
        for sample in samples:
            written = self._written(sample.inputs)
            self._ask({"do": "sample", "inputs": written, "kept": list(sample.cuts)})
            self._samples += 1

    def errors_alone(self, kinds: Iterable[str]) -> dict[tuple[int, str], float]:
        """The error of the network with one chain in a type and all others in float32.

        Args:
            kinds: types.

        Returns:
            Errors by place and type of every chain that can be computed in the type.
        """
        return {
            (position, kind): self.error_of({position: kind})
            for kind in kinds
            for position in eligible(self._chains, kind).places
        }

    def error_of(self, types: Types) -> float:
        """The error of the network with types of its chains, by place; others are in float32.

        It is infinite if a chain has no kernel to simulate it with, or if a type does not hold the
        numbers of a tensor.

        Raises:
            ChameleonError: there are no samples.
        """
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
        """The network's outputs with types of its chains, by place; others are in float32."""
        file = self._file("outputs")
        request = {"inputs": self._written(inputs), "outputs": str(file), "types": _as_json(types)}
        self._ask({"do": "outputs", **request})
        return read_arrays(file)


def _as_json(types: Types) -> dict[str, str]:
    return {str(position): kind for position, kind in types.items()}
