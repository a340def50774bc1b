"""A process that calibrates a network, and computes it with the rounding of reduced dtypes.

Chameleon starts it as ``python -m chameleon_networks._quantize.simulating``.

Requests and replies are lines of JSON on standard input and output. Arrays are passed in files.
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
from chameleon_networks._evaluation.messages import (
    network_from,
    read_arrays,
    serve,
    write_arrays,
)
from chameleon_networks._evaluation.verify import Sample, magnitudes, relative_error
from chameleon_networks._quantize.eligibility import eligible
from chameleon_networks._quantize.ranges import (
    Affine,
    Histogram,
    candidates,
    ranges_from_json,
    ranges_to_json,
)
from chameleon_networks._quantize.reads import Network
from chameleon_networks._quantize.simulated import SimulatedNetwork
from chameleon_networks._quantize.weights import Means, channel_means

log = structlog.get_logger()

_TRIED = 2
"""Number of batches on which the methods that find ranges are compared."""

CORRECTED = "corrected biases"
"""The key of the error with the best method and corrected biases."""


@attrs.frozen(kw_only=True, eq=False)
class Calibration:
    """The result of a calibration: the ranges with which tensors are quantized to 8 bits.

    Attributes:
        ranges: The range of each tensor, by tensor name.
        method: The method that found the ranges.
        errors: The error of the network with all operators in int8, by method.
        means: The mean of each channel of the tensors that fused operators read, by tensor name,
            for correcting biases. Empty if that would not reduce the error.
    """

    ranges: Mapping[str, Affine]
    method: str
    errors: Mapping[str, float]
    means: Means


class Calibrator:
    """Observes the tensors that a network's fused operators would read in int8.

    Tensors between which numbers are only moved or selected share one range. So the operator that
    moves the numbers can compute on eight bits.

    Args:
        simulated: The network.
    """

    def __init__(self, simulated: SimulatedNetwork) -> None:
        self._simulated = simulated
        network = simulated.network
        known = eligible(network.chains, INT8).places
        self._places = tuple(index for index in simulated.places if index in known)
        self._names = {
            (index, number): network.names[read]
            for index in self._places
            for number, read in enumerate(network.chains[index].inputs)
        }
        # A tensor that several chains read is counted once.
        first = {name: edge for edge, name in reversed(self._names.items())}
        self._counted = set(first.values())
        self._group_of = _groups(
            (network.names[source], network.names[other]) for source, other in network.carried()
        )
        self._histograms: dict[str, Histogram] = {}
        self._tried: list[tuple[Arrays, Arrays]] = []
        self._sums = {True: _Sums(), False: _Sums()}

    def observe(self, inputs: Arrays) -> None:
        """Run a batch through the network, and count the values of its tensors.

        Args:
            inputs: The inputs of one inference.

        Raises:
            ConfigError: A tensor of the network becomes infinite or NaN.
        """
        tried = len(self._tried) < _TRIED
        self._sums[tried].batches += 1
        outputs = self._simulated.outputs(inputs, observer=self._count)
        if tried:
            self._tried.append((inputs, outputs))

    def _count(self, index: int, number: int, values: NDArray[Any]) -> None:
        name = self._names.get((index, number))
        if name is None:
            return
        if (index, number) in self._counted:
            group = self._group_of.get(name, name)
            self._histograms.setdefault(group, Histogram()).add(values)
        chain = self._simulated.network.chains[index]
        if number == 0 and chain.constants.weights is not None:
            means = channel_means(chain, values)
            self._sums[len(self._tried) < _TRIED].add((index, name), means)

    def ranges(self) -> dict[str, dict[str, Affine]]:
        """The 8-bit ranges that several methods, such as percentiles, choose for all tensors.

        Returns:
            A mapping from the method's name to the ranges by tensor name.
        """
        names = {*self._names.values(), *self._group_of}
        by_group = {group: candidates(histogram) for group, histogram in self._histograms.items()}
        ranges: dict[str, dict[str, Affine]] = {}
        for name in sorted(names):
            for method, affine in by_group.get(self._group_of.get(name, name), {}).items():
                ranges.setdefault(method, {})[name] = affine
        return ranges

    def calibration(self) -> Calibration:
        """Choose the ranges with which the network in int8 has the least error.

        The ranges are compared by the error of the network's outputs, because the errors of single
        tensors say little about it. For example, clipping often reduces a tensor's squared error,
        but may change the network's largest output. Biases are corrected if a correction computed
        from some batches reduces the error on the other batches.
        """
        ranges = self.ranges()
        errors = {method: self._error(affines) for method, affines in ranges.items()}
        if not errors:
            return Calibration(ranges={}, method="none", errors={}, means={})
        method = min(errors, key=lambda name: errors[name])
        tried, others = self._sums[True], self._sums[False]
        means: Means = {}
        if others.batches:
            self._simulated.means = others.means()
            errors[CORRECTED] = self._error(ranges[method])
            if errors[CORRECTED] < errors[method]:
                means = others.means(tried)
            self._simulated.means = means
        log.info("ranges_chosen", method=method, corrected=bool(means), errors=errors)
        return Calibration(ranges=ranges[method], method=method, errors=errors, means=means)

    def _error(self, ranges: Mapping[str, Affine]) -> float:
        types = dict.fromkeys(self._places, INT8)
        scales = magnitudes([expected for _, expected in self._tried])
        return max(
            relative_error(self._simulated.outputs(inputs, types, ranges), expected, scales)
            for inputs, expected in self._tried
        )


class _Sums:
    """Sums over batches of the means of the channels that fused operators read.

    Attributes:
        batches: Number of batches.
        known: The sums, by the operator's index and the name of the tensor that it reads.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.known: dict[tuple[int, str], NDArray[np.float64]] = {}

    def add(self, edge: tuple[int, str], means: NDArray[np.float64]) -> None:
        """Add the channel means of one batch, for a tensor that a fused operator reads.

        Args:
            edge: The index of the operator and the name of the tensor.
            means: The mean of each channel, shape (channels,).
        """
        self.known[edge] = self.known[edge] + means if edge in self.known else means

    def means(self, *others: _Sums) -> Means:
        """Each channel's mean over the batches of this object and of others, by tensor name."""
        added = [sums for sums in (self, *others) if sums.batches]
        batches = sum(sums.batches for sums in added)
        return {
            name: np.sum([sums.known[index, name] for sums in added], axis=0) / batches
            for index, name in self.known
        }


def _groups(pairs: Any) -> dict[str, str]:
    """For each name in the pairs, the name of the group of all names that the pairs connect."""
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
        """Read a network, and say which of its fused operators can be simulated.

        Args:
            request: A mapping with the network (``describe_network``), the ``target``, and the
                ``names`` of the network's variables in the parent process.

        Raises:
            ConfigError: This process reads a different network from the same source.
        """
        module, chains = prepared_network(network_from(request))
        if list(Network(module, chains).names.values()) != request["names"]:
            raise ConfigError(
                "another process reads the network differently from this one",
                hint="A network has to be the same whenever it is made: seed what is random in it.",
            )
        self._simulated = SimulatedNetwork(module, chains, request["target"])
        self._calibrator = Calibrator(self._simulated)
        self._ranges: Message = {}
        self._samples: list[tuple[Sample, Arrays]] = []
        self._scales: tuple[float, ...] = ()
        return {"places": list(self._simulated.places)}

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
