"""The end of a run whose pipeline names a precision: types are chosen, verified and timed.

The network in float32 is compiled and verified before, as in any run. It stays what is delivered
where nothing else holds the bound, and where nothing else is faster.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays
from chameleon_core.words import in_seconds

from chameleon_tvm.graph.latency import median_seconds
from chameleon_tvm.graph.package import read_manifest, write_manifest
from chameleon_tvm.graph.processes import NetworkProcess, delivered_process
from chameleon_tvm.graph.verify import agreement
from chameleon_tvm.precision.edges import bytes_per_second
from chameleon_tvm.precision.eligibility import FLOAT32
from chameleon_tvm.precision.errors import Simulation
from chameleon_tvm.precision.metrics import metric_of, scored
from chameleon_tvm.precision.points import Front, Point, in_words
from chameleon_tvm.precision.settled import SettledPrecision
from chameleon_tvm.words import first_line

if TYPE_CHECKING:
    from chameleon_tvm.graph.delivery_steps import DeliverySteps

log = structlog.get_logger()

TRIALS = 5
"""Networks that are compiled at most until one holds the bound."""

_ANY = 1e30
"""What outputs may be off by where the pipeline names no bound: they have to be numbers."""


@attrs.frozen(kw_only=True, eq=False)
class Candidate:
    """A network with types that was compiled and checked.

    Attributes:
        point: its types.
        folder: where it is, or None where it could not be compiled.
        error: of its outputs on inputs that ranges are not from; infinite where there is none.
        problem: why it is not to be delivered, or None.
    """

    point: Point
    folder: Path | None
    error: float
    problem: str | None = None


def in_types(
    steps: DeliverySteps, settled: SettledPrecision, staged: Path, result: Mapping[str, Any]
) -> tuple[Path, dict[str, Any]]:
    """Choose types for a network that is verified in float32.

    Args:
        steps: its delivery.
        settled: the types that there are.
        staged: the folder that it is in, in float32.
        result: what there is to say about it.

    Returns:
        The folder of what is to be delivered, and what there is to say about that: ``precision`` in
        words, ``precision_summary``, a sentence, and ``front``, a row for each point.
    """
    with contextlib.ExitStack() as stack:
        try:
            return _TypedDelivery(steps, settled, staged, stack).chosen(result)
        except ChameleonError as error:
            log.warning("types_not_chosen", problem=str(error), hint=error.hint)
            told = f"{FLOAT32}, since types could not be chosen: {error}"
            return staged, {**result, "precision": FLOAT32, "precision_summary": told, "front": []}


class _TypedDelivery:
    def __init__(
        self,
        steps: DeliverySteps,
        settled: SettledPrecision,
        staged: Path,
        stack: contextlib.ExitStack,
    ) -> None:
        self._steps = steps
        self._settled = settled
        self._precision = settled.precision
        self._staged = staged
        self._stack = stack
        self._bound = _ANY if self._precision.max_error is None else self._precision.max_error
        self._inputs = settled.kept_batches()
        reference = steps.baselines.reference
        self._expected = [reference.outputs(inputs) for inputs in self._inputs]
        self._simulation: Simulation = stack.enter_context(
            settled.simulation(steps.target, steps.threads)
        )
        self._simulation.sample(self._inputs)
        self._float32 = stack.enter_context(self._process(FLOAT32, staged))
        self._drops = self._dropping()
        networks = settled.networks
        self._chains = len(networks.chains)
        self._front = Front(
            networks,
            settled.types,
            steps.with_alternatives(networks.chains),
            self._simulation,
            rate=bytes_per_second(),
        )

    def chosen(self, result: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
        """The folder of what is to be delivered, and what there is to say about it."""
        wanted = self._wanted()
        made = self._holding(wanted)
        candidates = [] if made is None else [made]
        single = self._front.uniform(self._bound)
        if single is not None and single.types != wanted.types:
            # What is chosen is to be no slower than the best type alone, as measured.
            beside = self._tried(single, "single")
            candidates += [beside] if beside.problem is None else []
        best, seconds = self._fastest(candidates)
        taken = {} if best is None else best.point.types
        points = self._told_of(best)
        rows = [one.to_json(self._chains, delivered=one.types == taken) for one in points]
        for one in points:
            log.info("precision_point", point=one.line(self._chains))
        told = "; ".join([self._summary(best, seconds), *self._front.told])
        log.info("precision_chosen", why=told)
        said = {
            "precision": in_words(taken, self._chains),
            "precision_summary": told,
            "front": rows,
        }
        folder, found = self._staged, {**result, **said}
        if best is not None and best.folder is not None:
            folder, found = best.folder, {**found, "max_relative_error": best.error}
        self._write_manifest(folder, best, said)
        return folder, found

    def _told_of(self, best: Candidate | None) -> list[Point]:
        """The points that are told of: those of the front, of one type, and what is delivered."""
        points = [*self._front.points, *self._front.dominated]
        if best is not None and all(one.types != best.point.types for one in points):
            points.append(best.point)
        return sorted(points, key=lambda one: (-one.seconds, one.error))

    # -- the point that is wanted, and one that holds the bound -------------------------------

    def _wanted(self) -> Point:
        """The fastest point that holds all bounds as simulated."""
        within = self._front.within(self._bound)
        if self._drops is None:
            return within
        # By falling seconds, float32 first; all before one that holds are taken to hold as well.
        points = [one for one in self._front.points if one.error <= self._bound]
        low, high = 0, len(points) - 1
        while low < high:
            middle = (low + high + 1) // 2
            types = points[middle].types
            holds = self._problem_of_metric(partial(self._simulation.outputs, types=types)) is None
            low, high = (middle, high) if holds else (low, middle - 1)
        return points[low]

    def _holding(self, point: Point) -> Candidate | None:
        """The point compiled; where it does not hold the bounds, one with fewer reduced operators.

        What the simulation leaves out makes the true error larger or smaller by some factor, which
        the next point allows for.
        """
        for trial in range(TRIALS):
            if not point.types:
                return None
            made = self._tried(point, f"types-{trial}")
            if made.problem is None:
                return made
            log.warning("types_fail", point=point.line(self._chains), problem=made.problem)
            limit = point.error / 2.0
            if point.error < made.error < math.inf and made.error > self._bound:
                limit = min(self._bound * point.error / made.error, point.error)
            point = self._front.eased(point, limit)
        return None

    def _tried(self, point: Point, name: str) -> Candidate:
        """A point compiled, and checked on inputs that ranges are not from."""
        try:
            folder = self._steps.compile_typed(self._settled.networks.of(point.types), name)
            with self._process("the network in types", folder) as process:
                return self._checked(point, folder, process)
        except ChameleonError as error:
            return Candidate(point=point, folder=None, error=math.inf, problem=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises, float32 is there
            problem = f"it cannot be compiled: {first_line(error)}"
            return Candidate(point=point, folder=None, error=math.inf, problem=problem)

    def _checked(self, point: Point, folder: Path, process: NetworkProcess) -> Candidate:
        worst = 0.0
        for inputs, expected in zip(self._inputs, self._expected, strict=True):
            found = agreement(process.outputs(inputs), expected, tolerance=self._bound)
            error = math.inf if found.max_relative_error is None else found.max_relative_error
            worst = max(worst, error)
            if found.problem is not None:
                return Candidate(point=point, folder=folder, error=error, problem=found.problem)
        problem = None if self._drops is None else self._problem_of_metric(process.outputs)
        return Candidate(point=point, folder=folder, error=worst, problem=problem)

    def _dropping(self) -> Callable[[Callable[[Arrays], Arrays]], float] | None:
        """How much smaller the user's metric is than in float32; None without one."""
        source = self._precision.metric
        if source is None:
            return None
        metric = metric_of(source)
        before = scored(metric, source, self._float32.outputs)

        def drop(run: Callable[[Arrays], Arrays]) -> float:
            return before - scored(metric, source, run)

        return drop

    def _problem_of_metric(self, run: Callable[[Arrays], Arrays]) -> str | None:
        most = self._precision.max_drop
        if self._drops is None or most is None:
            return None
        drop = self._drops(run)
        if drop <= most:
            return None
        return f"its metric is {drop:.3g} below that in float32, where {most:g} is allowed"

    # -- what is fastest, and what is said ----------------------------------------------------

    def _fastest(
        self, candidates: Sequence[Candidate]
    ) -> tuple[Candidate | None, Mapping[str, float]]:
        """The fastest candidate where it is faster than float32, and the seconds of all."""
        if not candidates:
            return None, {}
        named = {f"types {place}": one for place, one in enumerate(candidates)}
        processes = [self._float32]
        for name, one in named.items():
            if one.folder is not None:
                processes.append(self._stack.enter_context(self._process(name, one.folder)))
        found = median_seconds(processes, self._inputs[0], threads=self._steps.threads)
        seconds = {name: one for name, one in found.items() if one is not None}
        name = min(seconds, key=seconds.__getitem__, default=FLOAT32)
        told = {FLOAT32: seconds.get(FLOAT32, math.inf)}
        told |= {
            in_words(one.point.types, self._chains): seconds[key]
            for key, one in reversed(named.items())
            if key in seconds
        }
        return named.get(name), told

    def _summary(self, best: Candidate | None, seconds: Mapping[str, float]) -> str:
        """What was chosen and why, as a sentence."""
        bound = self._bounds()
        others = ", ".join(f"{in_seconds(took)} in {name}" for name, took in seconds.items())
        if best is not None:
            counted = best.point.counted(self._chains).items()
            counts = ", ".join(f"{count} in {kind}" for kind, count in counted)
            operators = f"of {self._chains} operators {counts}"
            return f"{operators}; error {best.error:.1e}{bound and f', {bound}'} ({others})"
        if seconds:
            return f"{FLOAT32}, since nothing else is faster ({others})"
        if len(self._front.points) == 1:
            kinds = " or ".join(self._settled.types)
            return f"{FLOAT32}, since the operators are no faster in {kinds} as measured"
        return f"{FLOAT32}, since nothing faster holds the bound: {bound or 'finite outputs'}"

    def _bounds(self) -> str:
        """The bounds in words; empty where there are none."""
        precision = self._precision
        told = []
        if precision.max_error is not None:
            told.append(f"at most {precision.max_error:g} is allowed")
        if precision.metric is not None:
            told.append(f"a drop of {precision.max_drop:g} of {precision.metric} is allowed")
        return " and ".join(told)

    def _write_manifest(
        self, folder: Path, best: Candidate | None, said: Mapping[str, Any]
    ) -> None:
        manifest = {**read_manifest(folder), "precision": dict(said)}
        if best is not None:
            manifest["verification"] = {
                "reference": self._steps.baselines.reference.name,
                "samples": len(self._inputs),
                "tolerance": self._precision.max_error,
                "max_relative_error": best.error,
            }
        write_manifest(folder, manifest)

    def _process(self, name: str, folder: Path) -> NetworkProcess:
        return delivered_process(name, folder, threads=self._steps.threads)


__all__ = ["Candidate", "in_types"]
