"""Networks with types: compiled once each, and checked on inputs that ranges are not from."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
from chameleon_core.errors import ChameleonError
from chameleon_core.fallbacks import fall_back
from chameleon_core.stages import Arrays
from chameleon_tvm.words import first_line

from chameleon_networks.delivery.delivery_steps import DeliverySteps
from chameleon_networks.delivery.typed.decisions import PrecisionDecisions
from chameleon_networks.delivery.typed.operator_seconds import BuiltNetwork
from chameleon_networks.precision.metrics import metric_of, scored
from chameleon_networks.precision.networks import Types
from chameleon_networks.precision.points import Point
from chameleon_networks.running.processes import NetworkProcess, delivered_process
from chameleon_networks.running.verify import agreement, magnitudes

ANY = 1e30
"""What outputs may be off by where the pipeline names no bound: they have to be numbers."""

COMPILING, VERIFYING = "compiling in types", "verifying in types"
"""Steps of a delivery."""

Run = Callable[[Arrays], Arrays]


@attrs.frozen(kw_only=True, eq=False)
class Candidate:
    """A network with types that was compiled and checked.

    Attributes:
        point: its types.
        built: it, or None where it could not be compiled.
        error: of its outputs on inputs that ranges are not from; infinite where there is none.
        problem: why it is not to be delivered, or None.
    """

    point: Point
    built: BuiltNetwork | None
    error: float
    problem: str | None = None

    @property
    def folder(self) -> Path | None:
        """Where it is."""
        return None if self.built is None else self.built.folder


class Candidates:
    """Compiles networks with types and checks them.

    Args:
        steps: the delivery of the network in float32.
        settled: the types that there are.
        staged: the folder of the network in float32.

    Attributes:
        samples: that networks are checked on.
    """

    def __init__(self, steps: DeliverySteps, settled: PrecisionDecisions, staged: Path) -> None:
        self._steps = steps
        self._settled = settled
        self._bound = ANY if settled.precision.max_error is None else settled.precision.max_error
        self.samples = settled.kept_batches()
        reference = steps.baselines.reference
        self._expected = [one.cut(reference.outputs(one.inputs)) for one in self.samples]
        self._scales = magnitudes(self._expected)
        self._built: dict[frozenset[tuple[int, str]], BuiltNetwork] = {}
        self._staged = staged
        self._drops: Callable[[Run], float] | None = None

    def measure_float32(self, run: Run) -> None:
        """Find what the user's metric is in float32, if there is one."""
        source = self._settled.precision.metric
        if source is None:
            return
        metric = metric_of(source)
        before = scored(metric, source, run)
        self._drops = lambda other: before - scored(metric, source, other)

    def built(self, types: Types) -> BuiltNetwork:
        """A network compiled; float32 alone is what was verified before.

        Raises:
            Exception: it cannot be compiled.
        """
        key = frozenset(types.items())
        if key not in self._built:
            with self._steps.seconds.during(COMPILING):
                self._built[key] = self._compiled(types, f"types-{len(self._built)}")
        return self._built[key]

    def _compiled(self, types: Types, name: str) -> BuiltNetwork:
        network = self._settled.networks.of(types)
        folder = self._steps.compile_typed(network, name) if types else self._staged
        kernels = self._steps.with_alternatives(network.chains)
        return BuiltNetwork.of(types, network, kernels, folder)

    def tried(self, point: Point) -> Candidate:
        """A point compiled and checked."""
        try:
            built = self.built(point.types)
            with (
                self._steps.seconds.during(VERIFYING),
                self.process("the network in types", built.folder) as process,
            ):
                return self._checked(point, built, process)
        except ChameleonError as error:
            return Candidate(point=point, built=None, error=math.inf, problem=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises, float32 is there
            fall_back("types_not_compiled", error)
            problem = f"it cannot be compiled: {first_line(error)}"
            return Candidate(point=point, built=None, error=math.inf, problem=problem)

    def _checked(self, point: Point, built: BuiltNetwork, process: NetworkProcess) -> Candidate:
        made = partial(Candidate, point=point, built=built)
        worst = 0.0
        for one, expected in zip(self.samples, self._expected, strict=True):
            got = one.cut(process.outputs(one.inputs))
            found = agreement(got, expected, tolerance=self._bound, scales=self._scales)
            error = math.inf if found.max_relative_error is None else found.max_relative_error
            worst = max(worst, error)
            if found.problem is not None:
                return made(error=error, problem=found.problem)
        return made(error=worst, problem=self.problem_of_metric(process.outputs))

    def problem_of_metric(self, run: Run) -> str | None:
        """By how much the user's metric is too far below that in float32, if there is one."""
        most = self._settled.precision.max_drop
        if self._drops is None or most is None:
            return None
        drop = self._drops(run)
        if drop <= most:
            return None
        return f"its metric is {drop:.3g} below that in float32, where {most:g} is allowed"

    def process(self, name: str, folder: Path) -> NetworkProcess:
        """A process that has the network of a folder open."""
        return delivered_process(name, folder, threads=self._steps.threads)


__all__ = ["ANY", "Candidate", "Candidates"]
