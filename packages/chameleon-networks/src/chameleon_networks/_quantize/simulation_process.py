"""A process that calibrates and simulates a network, as a module of ``python -m``.

Requests and replies are lines of JSON; arrays are passed in files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays, ConfigError
from chameleon_system.api import Message
from chameleon_tvm.api import INT8
from numpy.typing import NDArray

from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._evaluation.messages import network_from, read_arrays, serve, write_arrays
from chameleon_networks._evaluation.verify import Sample, magnitudes, relative_error
from chameleon_networks._quantize.data_flow import DataFlow
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import (
    Affine,
    Histogram,
    candidate_ranges,
    ranges_from_json,
    ranges_to_json,
)
from chameleon_networks._quantize.simulated_network import SimulatedNetwork
from chameleon_networks._quantize.weights import Means, channel_means

log = structlog.get_logger()

_COMPARED_BATCHES = 2
"""Number of batches on which the methods that find ranges are compared."""

CORRECTED_BIASES = "corrected biases"
"""The key of the error with the best method and corrected biases."""


@attrs.frozen(kw_only=True, eq=False)
class Calibration:
    """The result of a calibration: the ranges with which tensors are quantized to 8 bits.

    Attributes:
        ranges: The range of each tensor, by tensor name.
        method: The method that found the ranges.
        errors: The error of the network with all operators in int8, by method.
        means: The mean of each channel of the tensors that fusion groups read, by tensor name,
            for correcting biases. Empty if that would not reduce the error.
    """

    ranges: Mapping[str, Affine]
    method: str
    errors: Mapping[str, float]
    means: Means


class Calibrator:
    """Observes tensors for int8; those that data movement connects share a range."""

    def __init__(self, simulated: SimulatedNetwork) -> None:
        self._simulated = simulated
        network = simulated.network
        known = find_eligible(network.fusions, INT8).indices
        self._places = tuple(index for index in simulated.indices if index in known)
        self._names = {
            (index, number): network.names[read]
            for index in self._places
            for number, read in enumerate(network.fusions[index].inputs)
        }
        # A tensor that several fusion groups read is counted once.
        first = {name: edge for edge, name in reversed(self._names.items())}
        self._observed_edges = set(first.values())
        self._group_of = _connected_names(
            (network.names[source], network.names[other]) for source, other in network.moved_pairs()
        )
        self._histograms: dict[str, Histogram] = {}
        self._compared: list[tuple[Arrays, Arrays]] = []
        self._channel_sums = {True: _ChannelSums(), False: _ChannelSums()}

    def observe(self, inputs: Arrays) -> None:
        """Run a batch through the network, and count the values of its tensors."""
        is_compared = len(self._compared) < _COMPARED_BATCHES
        self._channel_sums[is_compared].batches += 1
        outputs = self._simulated.outputs(inputs, observer=self._count)
        if is_compared:
            self._compared.append((inputs, outputs))

    def _count(self, index: int, number: int, values: NDArray[Any]) -> None:
        name = self._names.get((index, number))
        if name is None:
            return
        if (index, number) in self._observed_edges:
            group = self._group_of.get(name, name)
            self._histograms.setdefault(group, Histogram()).add(values)
        fusion = self._simulated.network.fusions[index]
        if number == 0 and fusion.constants.weights is not None:
            means = channel_means(fusion, values)
            self._channel_sums[len(self._compared) < _COMPARED_BATCHES].add((index, name), means)

    def ranges(self) -> dict[str, dict[str, Affine]]:
        """The 8-bit ranges that several methods, such as percentiles, choose for all tensors."""
        names = {*self._names.values(), *self._group_of}
        by_group = {group: candidate_ranges(counts) for group, counts in self._histograms.items()}
        ranges: dict[str, dict[str, Affine]] = {}
        for name in sorted(names):
            for method, affine in by_group.get(self._group_of.get(name, name), {}).items():
                ranges.setdefault(method, {})[name] = affine
        return ranges

    def calibration(self) -> Calibration:
        """Choose ranges and the correction of biases by the error of the network's outputs."""
        # Clipping often reduces a tensor's error, but may change the network's largest output.
        ranges = self.ranges()
        errors = {method: self._error(affines) for method, affines in ranges.items()}
        if not errors:
            return Calibration(ranges={}, method="none", errors={}, means={})
        method = min(errors, key=lambda name: errors[name])
        is_compared, rest = self._channel_sums[True], self._channel_sums[False]
        means: Means = {}
        if rest.batches:
            self._simulated.means = rest.means()
            errors[CORRECTED_BIASES] = self._error(ranges[method])
            if errors[CORRECTED_BIASES] < errors[method]:
                means = rest.means(is_compared)
            self._simulated.means = means
        log.info("ranges_chosen", method=method, corrected=bool(means), errors=errors)
        return Calibration(ranges=ranges[method], method=method, errors=errors, means=means)

    def _error(self, ranges: Mapping[str, Affine]) -> float:
        types = dict.fromkeys(self._places, INT8)
        scales = magnitudes([expected for _, expected in self._compared])
        return max(
            relative_error(self._simulated.outputs(inputs, types, ranges), expected, scales)
            for inputs, expected in self._compared
        )


class _ChannelSums:
    """Sums over batches of the means of the channels that fusion groups read.

    Attributes:
        batches: Number of batches.
        known: The sums, by the operator's index and the name of the tensor that it reads.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.known: dict[tuple[int, str], NDArray[np.float64]] = {}

    def add(self, edge: tuple[int, str], means: NDArray[np.float64]) -> None:
        """Add the channel means of one batch, for a tensor that a fusion group reads.

        Args:
            edge: The index of the operator and the name of the tensor.
            means: The mean of each channel, shape (channels,).
        """
        self.known[edge] = self.known[edge] + means if edge in self.known else means

    def means(self, *rest: _ChannelSums) -> Means:
        """Each channel's mean over the batches of this object and of others, by tensor name."""
        added = [sums for sums in (self, *rest) if sums.batches]
        batches = sum(sums.batches for sums in added)
        return {
            name: np.sum([sums.known[index, name] for sums in added], axis=0) / batches
            for index, name in self.known
        }


def _connected_names(pairs: Any) -> dict[str, str]:
    """The representative of the connected component of each name."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    for first, other in pairs:
        parents[root(other)] = root(first)
    return {name: root(name) for name in list(parents)}


class Server:
    """Answers requests about one simulated network, the first of which opens it."""

    def answer(self, request: Message) -> Message:
        """Answer a request with the method that its key ``do`` names."""
        return getattr(self, f"_{request['do']}")(request)  # type: ignore[no-any-return]

    def _open(self, request: Message) -> Message:
        """Read a network, and say which of its fusion groups can be simulated.

        Args:
            request: A mapping with the network (``describe_network``), the ``target``, and the
                ``names`` of the network's variables in the parent process.

        Raises:
            ConfigError: This process reads a different network from the same source.
        """
        module, fusions = prepared_network(network_from(request))
        if list(DataFlow(module, fusions).names.values()) != request["names"]:
            raise ConfigError(
                "another process reads the network differently from this one",
                hint="A network has to be the same whenever it is made: seed what is random in it.",
            )
        self._simulated = SimulatedNetwork(module, fusions, request["target"])
        self._calibrator = Calibrator(self._simulated)
        self._ranges: Message = {}
        self._samples: list[tuple[Sample, Arrays]] = []
        self._scales: tuple[float, ...] = ()
        return {"places": list(self._simulated.indices)}

    def _observe(self, request: Message) -> Message:
        self._calibrator.observe(_inputs(request))
        return {}

    def _calibrate(self, request: Message) -> Message:
        calibration = self._calibrator.calibration()
        self._ranges = dict(calibration.ranges)
        write_arrays(Path(request["means"]), list(calibration.means.values()))
        return {
            "ranges": ranges_to_json(calibration.ranges),
            "method": calibration.method,
            "errors": dict(calibration.errors),
            "means": list(calibration.means),
        }

    def _recall(self, request: Message) -> Message:
        self._ranges = ranges_from_json(request["ranges"])
        self._simulated.means = dict(zip(request["names"], _inputs(request), strict=True))
        return {}

    def _sample(self, request: Message) -> Message:
        cuts = tuple((number, axis, extent) for number, axis, extent in request["kept"])
        sample = Sample(inputs=_inputs(request), cuts=cuts)
        expected = sample.run(self._simulated.outputs)
        self._samples.append((sample, expected))
        self._scales = magnitudes([expected for _, expected in self._samples])
        return {}

    def _error(self, request: Message) -> Message:
        return {"value": max(self._error_of(request, *sample) for sample in self._samples)}

    def _error_of(self, request: Message, sample: Sample, expected: Arrays) -> float:
        """The error of one sample. Infinite if a dtype could not represent a number."""
        got = sample.cut(self._outputs_of(sample.inputs, request))
        error: float = relative_error(got, expected, self._scales)
        return math.inf if self._simulated.overflowed else error

    def _outputs(self, request: Message) -> Message:
        write_arrays(Path(request["outputs"]), self._outputs_of(_inputs(request), request))
        return {}

    def _outputs_of(self, inputs: Arrays, request: Message) -> Arrays:
        types = {int(index): kind for index, kind in request["types"].items()}
        return self._simulated.outputs(inputs, types, self._ranges)


def _inputs(request: Message) -> Arrays:
    return read_arrays(Path(request["inputs"]))


if __name__ == "__main__":
    serve(Server().answer)
