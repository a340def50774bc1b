"""Ranges of what a network's chains read, from the batches that went through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import structlog
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.graph.verify import agreement
from chameleon_tvm.precision.eligibility import INT8, eligible
from chameleon_tvm.precision.histograms import Histogram
from chameleon_tvm.precision.ranges import Affine, candidates
from chameleon_tvm.precision.simulated import SimulatedNetwork

log = structlog.get_logger()

_TRIED = 2
"""Batches on which the methods that find ranges are compared."""


@attrs.frozen(kw_only=True, eq=False)
class Calibration:
    """Ranges, and how they were found.

    Attributes:
        ranges: of tensors by name.
        method: that found them.
        errors: of the network with all chains in int8, by method.
    """

    ranges: Mapping[str, Affine]
    method: str
    errors: Mapping[str, float]


class Calibrator:
    """Observes what chains of a network read that can be computed in int8.

    Tensors between which numbers are only moved or selected have one range: what moves them can
    then be computed on eight bits.

    Args:
        simulated: the network.
    """

    def __init__(self, simulated: SimulatedNetwork) -> None:
        self._simulated = simulated
        network = simulated.network
        known = eligible(network.chains, INT8).places
        self.places = tuple(place for place in simulated.places if place in known)
        self._observed = {
            (place, number): network.names[read]
            for place in self.places
            for number, read in enumerate(network.chains[place].inputs)
        }
        # A tensor that several chains read is counted once.
        first: dict[str, tuple[int, int]] = {}
        for edge, name in self._observed.items():
            first.setdefault(name, edge)
        self._edges = set(first.values())
        self._together = _groups(
            (network.names[one], network.names[other]) for one, other in network.carried()
        )
        self._histograms: dict[str, Histogram] = {}
        self._tried: list[tuple[Arrays, Arrays]] = []

    def observe(self, inputs: Arrays) -> None:
        """Run a batch through the network.

        Raises:
            ConfigError: something in the network is infinite or not a number then.
        """
        outputs = self._simulated.outputs(inputs, observer=self._count)
        if len(self._tried) < _TRIED:
            self._tried.append((inputs, outputs))

    def _count(self, place: int, number: int, values: NDArray[Any]) -> None:
        if (place, number) in self._edges:
            name = self._observed[place, number]
            group = self._together.get(name, name)
            self._histograms.setdefault(group, Histogram()).add(values)

    def ranges(self) -> dict[str, dict[str, Affine]]:
        """Ranges of tensors by name, by the method that finds them."""
        names = {*self._observed.values(), *self._together}
        by_group = {group: candidates(one) for group, one in self._histograms.items()}
        found: dict[str, dict[str, Affine]] = {}
        for name in sorted(names):
            for method, affine in by_group.get(self._together.get(name, name), {}).items():
                found.setdefault(method, {})[name] = affine
        return found

    def calibration(self) -> Calibration:
        """The ranges with which the network with all chains in int8 has the least error.

        What a tensor loses by itself says little of what the network makes of it: clipping saves
        most squares, and may cost the largest output.
        """
        ranges = self.ranges()
        types = dict.fromkeys(self.places, INT8)
        errors = {method: self._error(types, one) for method, one in ranges.items()}
        if not errors:
            return Calibration(ranges={}, method="none", errors={})
        method = min(errors, key=lambda one: errors[one])
        log.info("ranges_chosen", method=method, errors=errors)
        return Calibration(ranges=ranges[method], method=method, errors=errors)

    def _error(self, types: Mapping[int, str], ranges: Mapping[str, Affine]) -> float:
        return max(
            error_between(self._simulated.outputs(inputs, types, ranges), expected)
            for inputs, expected in self._tried
        )


def error_between(got: Arrays, expected: Arrays) -> float:
    """The largest |difference| over the largest |expected|; infinite where numbers are missing."""
    found = agreement(got, expected, tolerance=float("inf")).max_relative_error
    return float("inf") if found is None else found


def _groups(pairs: Any) -> dict[str, str]:
    """For each name in a pair the first name of all that pairs connect it with."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    for one, other in pairs:
        parents[root(other)] = root(one)
    return {name: root(name) for name in list(parents)}
