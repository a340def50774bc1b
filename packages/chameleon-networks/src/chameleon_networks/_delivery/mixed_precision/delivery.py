"""Chooses the dtypes of a network at the end of a run with a section ``precision``.

The network in float32 is compiled and verified first, as in any run. Then networks with chosen
dtypes are compiled, verified and timed. If none of these networks is faster and has small enough
errors, the network in float32 is delivered.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import structlog
from chameleon_core.api import NetworkResult, words
from chameleon_core.plugin_api import FLOAT32, Arrays, ChameleonError, fall_back
from chameleon_tvm.api import chosen_types, first_line

from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._delivery.delivery_steps import DeliverySteps
from chameleon_networks._delivery.kernel_choice import kernel_seconds_in_networks
from chameleon_networks._delivery.mixed_precision.decisions import PrecisionDecisions
from chameleon_networks._delivery.mixed_precision.operator_seconds import (
    CompiledCandidate,
    OperatorSeconds,
)
from chameleon_networks._delivery.mixed_precision.simulation import Simulation
from chameleon_networks._evaluation.latency import median_seconds
from chameleon_networks._evaluation.processes import NetworkProcess, delivered_process
from chameleon_networks._evaluation.verify import compare_all, magnitudes
from chameleon_networks._precision.exchanged_tensors import bytes_per_second
from chameleon_networks._precision.metrics import evaluate_metric, import_metric
from chameleon_networks._precision.points import (
    ParetoFront,
    Point,
    dtype_counts_text,
    float32_reasons,
)
from chameleon_networks._precision.typed_networks import Types
from chameleon_networks._source_files import watched

ANY = 1e30
"""The bound of the error if the pipeline has none: outputs must be finite."""

COMPILING, VERIFYING = "compiling in types", "verifying in types"
"""Names of steps of a delivery."""

Run = Callable[[Arrays], Arrays]


@attrs.frozen(kw_only=True, eq=False)
class Candidate:
    """A network with chosen dtypes that was compiled and checked.

    Attributes:
        point: The dtypes of the network.
        error: The error of the outputs on inputs that were not used for calibration. Infinite if
            there are no outputs.
        folder: The folder of the compiled network. None if it could not be compiled.
        score: The user's metric of the network; None without a metric, or if it was not computed.
        problem: The reason why the network must not be delivered, or None.
    """

    point: Point
    error: float
    score: float | None = None
    folder: Path | None = None
    problem: str | None = None


class Candidates:
    """Compiles networks with chosen dtypes, and checks them.

    Attributes:
        samples: The inputs on which networks are checked.
        score: The user's metric of the network in float32; None without a metric.
    """

    def __init__(self, steps: DeliverySteps, settled: PrecisionDecisions, staged: Path) -> None:
        self._steps = steps
        self._settled = settled
        self._bound = ANY if settled.precision.max_error is None else settled.precision.max_error
        self.samples = settled.held_out_batches()
        reference = steps.baselines.reference
        self._expected = [sample.run(reference.outputs) for sample in self.samples]
        self._scales = magnitudes(self._expected)
        self._built: dict[frozenset[tuple[int, str]], CompiledCandidate] = {}
        self._staged = staged
        self.score: float | None = None
        self._score_of: Callable[[Run], float] | None = None

    def measure_float32(self, run: Run) -> None:
        """Compute the user's metric, if there is one, of the network in float32."""
        source = self._settled.precision.metric
        if source is None:
            return
        with watched(self._settled.sources):
            metric = import_metric(source)
            self.score = evaluate_metric(metric, source, run)
        self._score_of = lambda other: evaluate_metric(metric, source, other)

    def built(self, types: Types) -> CompiledCandidate:
        """Compile the network with some fusion groups in reduced dtypes."""
        key = frozenset(types.items())
        if key not in self._built:
            with self._steps.seconds.during(COMPILING):
                self._built[key] = self._compiled(types, f"types-{len(self._built)}")
        return self._built[key]

    def _compiled(self, types: Types, name: str) -> CompiledCandidate:
        network = self._settled.networks.of(types)
        kernels = self._steps.with_alternatives(network.fusions)
        folder = self._steps.compile(kernels, name, network) if types else self._staged
        return CompiledCandidate.of(types, network, kernels, folder)

    def tried(self, point: Point) -> Candidate:
        """Compile and check the network with the dtypes of a point."""
        try:
            built = self.built(point.types)
            with (
                self._steps.seconds.during(VERIFYING),
                self.process("the network in types", built.folder) as process,
            ):
                return self._checked(point, built.folder, process)
        except ChameleonError as error:
            return Candidate(point=point, error=math.inf, problem=str(error))
        except Exception as error:  # noqa: BLE001 - float32 remains
            fall_back("dtypes_not_compiled", error)
            problem = f"it cannot be compiled: {first_line(error)}"
            return Candidate(point=point, error=math.inf, problem=problem)

    def _checked(self, point: Point, folder: Path | None, process: NetworkProcess) -> Candidate:
        answers = (sample.run(process.outputs) for sample in self.samples)
        check = compare_all(answers, self._expected, tolerance=self._bound, scales=self._scales)
        error = math.inf if check.max_relative_error is None else check.max_relative_error
        problem, score = check.problem, None
        if problem is None:
            score, problem = self.metric_of(process.outputs)
        return Candidate(point=point, error=error, folder=folder, score=score, problem=problem)

    def problem_of(self, point: Point, process: NetworkProcess, *_: object) -> str | None:
        """The reason why a network with the dtypes of a point must not be delivered, or None."""
        return self._checked(point, None, process).problem

    def metric_of(self, run: Run) -> tuple[float | None, str | None]:
        """The user's metric, and a sentence if it is too far below that in float32, or None."""
        most = self._settled.precision.max_drop
        if self._score_of is None or self.score is None or most is None:
            return None, None
        score = self._score_of(run)
        drop = self.score - score
        if drop <= most:
            return score, None
        return score, f"its metric is {drop:.3g} below that in float32; at most {most:g} is allowed"

    def process(self, name: str, folder: Path) -> NetworkProcess:
        """Start a process with the network of a folder."""
        return delivered_process(name, folder, threads=self._steps.threads)


log = structlog.get_logger()

TRIALS = 5
"""Most networks that are compiled until one holds the bound."""

SIMULATING, TIMING, CHOOSING = "simulating types", "timing in types", "choosing types"
"""Names of further steps of a delivery."""

CHOICES = 2
"""Most choices that are compiled. The first choice uses times of operators from networks with a
single dtype. The next choice uses their times in the network of the first choice."""


def choose_dtypes(
    steps: DeliverySteps, settled: PrecisionDecisions | None, staged: Path, result: NetworkResult
) -> tuple[Path, NetworkResult]:
    """Choose dtypes that make a verified network faster; its folder and result."""
    if settled is None:
        return staged, result
    with contextlib.ExitStack() as stack:
        try:
            return _TypedDelivery(steps, settled, staged, stack).chosen(result)
        except ChameleonError as error:
            log.warning("dtypes_not_chosen", problem=str(error), hint=error.hint)
            summary = f"{FLOAT32}, since types could not be chosen: {error}"
            return staged, attrs.evolve(result, precision_summary=summary)


def precision_facts(result: NetworkResult) -> Mapping[str, object]:
    """The facts about chosen dtypes that are written into a network's manifest."""
    fields = {"precision", "precisions", "precision_summary", "front", "score", "score_in_float32"}
    return {name: value for name, value in result.to_json().items() if name in fields}


class _TypedDelivery:
    def __init__(
        self,
        steps: DeliverySteps,
        settled: PrecisionDecisions,
        staged: Path,
        stack: contextlib.ExitStack,
    ) -> None:
        self._steps = steps
        self._settled = settled
        self._precision = settled.precision
        self._staged = staged
        self._stack = stack
        self._clock = steps.seconds
        self._clock.begin(CHOOSING)
        self._bound = ANY if self._precision.max_error is None else self._precision.max_error
        self._candidates = Candidates(steps, settled, staged)
        with self._clock.during(SIMULATING):
            self._simulation: Simulation = stack.enter_context(
                settled.simulation(steps.target, steps.threads)
            )
            self._simulation.sample(self._candidates.samples)
        self._simulation.during = partial(self._clock.during, SIMULATING)
        self._float32 = stack.enter_context(self._candidates.process(FLOAT32, staged))
        self._candidates.measure_float32(self._float32.outputs)
        networks = settled.networks
        self._fusions = len(networks.fusions)
        self._seconds = OperatorSeconds(
            networks, settled.types, steps.with_alternatives(networks.fusions)
        )
        self._staying = float32_reasons(networks, settled.types, self._seconds.times)
        uniform = [self._seconds.uniform(kind) for kind in settled.types]
        self._in_networks = self._observed([{}, *uniform])
        self._front = self._front_now()
        self._trials = TRIALS

    def _front_now(self) -> ParetoFront:
        """The front of error against seconds, with the operators' seconds known so far."""
        return ParetoFront(
            self._settled.networks,
            self._seconds.kinds,
            self._seconds.times,
            self._simulation,
            rate=bytes_per_second(),
        )

    def chosen(self, result: NetworkResult) -> tuple[Path, NetworkResult]:
        """Choose the dtypes of the fastest verified network whose error is within the bound."""
        candidates = self._chosen()
        single = self._front.uniform(self._bound)
        if single is not None and all(single.types != rival.point.types for rival in candidates):
            # The choice must be no slower, as measured, than the best dtype used for all operators.
            beside = self._candidates.tried(single)
            candidates += [beside] if beside.problem is None else []
        best, seconds = self._fastest(candidates)
        types = {} if best is None else best.point.types
        points = self._listed(best)
        for point in points:
            log.info("precision_point", point=point.line(self._fusions))
        summary = "; ".join([self._summary(best, seconds), *self._front.notes, *self._staying])
        log.info("precision_chosen", summary=summary)
        folder = self._staged
        result = attrs.evolve(
            result,
            precision=dtype_counts_text(types, self._fusions),
            precisions=chosen_types(types.values()),
            precision_summary=summary,
            score=self._candidates.score if best is None else best.score,
            score_in_float32=self._candidates.score,
            front=tuple(p.row(self._fusions, delivered=p.types == types) for p in points),
        )
        if best is not None and best.folder is not None:
            folder, result = best.folder, attrs.evolve(result, max_relative_error=best.error)
            self._steps.problem_of = partial(self._candidates.problem_of, best.point)
        self._write_manifest(folder, best, result)
        return folder, result

    def _chosen(self) -> list[Candidate]:
        """Networks within the bounds; each choice uses times measured in the network before it."""
        # All weights together decide what stays in the caches, so an operator's time depends on the
        # dtypes of the others.
        candidates: list[Candidate] = []
        known: list[Types] = []
        while (point := self._wanted()).types and point.types not in known:
            candidate = self._holding(point)
            if candidate is None or candidate.point.types in known:
                break
            candidates.append(candidate)
            known += [point.types, candidate.point.types]
            if len(candidates) == CHOICES or not self._in_networks:
                break
            if not self._observed([candidate.point.types]):
                break
            self._front = self._front_now()
        return candidates

    def _observed(self, types: Sequence[Types]) -> bool:
        """Time the operators inside networks with some dtypes."""
        try:
            networks = [self._candidates.built(kinds) for kinds in types]
            with contextlib.ExitStack() as stack:
                name = "the network in types"
                processes = [
                    stack.enter_context(self._candidates.process(name, network.folder))
                    for network in networks
                ]
                inputs, threads = self._candidates.samples[0].inputs, self._steps.threads
                with self._clock.during(TIMING):
                    seconds = kernel_seconds_in_networks(processes, inputs, threads=threads)
        except Exception as error:  # noqa: BLE001 - the times of single operators remain
            if isinstance(error, ChameleonError):
                log.warning("operators_not_timed_in_networks", problem=str(error))
            else:
                fall_back("operators_not_timed_in_networks", error)
            return False
        if self._seconds.observe(networks, seconds):
            return True
        log.warning("operators_not_timed_in_networks", problem="profiles do not name them all")
        return False

    def _listed(self, best: Candidate | None) -> list[Point]:
        """The points of the result: the front, the networks of one dtype, the delivered one."""
        points = [*self._front.points, *self._front.dominated]
        if best is not None and all(point.types != best.point.types for point in points):
            points.append(self._front.retimed(best.point))
        return sorted(points, key=lambda point: (-point.seconds, point.error))

    # -- the point that is wanted, and one that holds the bound -------------------------------

    def _wanted(self) -> Point:
        """The fastest point that is within all bounds by simulation."""
        within = self._front.fastest_within(self._bound)
        if self._precision.metric is None:
            return within
        # The points are sorted by falling seconds, float32 first. If one has a good metric, the
        # search assumes this of all before it.
        points = [point for point in self._front.points if point.error <= self._bound]
        low, high = 0, len(points) - 1
        while low < high:
            middle = (low + high + 1) // 2
            types = points[middle].types
            run = partial(self._simulation.outputs, types=types)
            _, problem = self._candidates.metric_of(run)
            low, high = (middle, high) if problem is None else (low, middle - 1)
        return points[low]

    def _holding(self, point: Point) -> Candidate | None:
        """Compile a point, and return more and more operators to float32 until the bounds hold."""
        while point.types and self._trials:
            self._trials -= 1
            candidate = self._candidates.tried(point)
            if candidate.problem is None:
                return candidate
            log.warning("dtypes_fail", point=point.line(self._fusions), problem=candidate.problem)
            limit = point.error / 2.0
            if point.error < candidate.error < math.inf and candidate.error > self._bound:
                limit = min(self._bound * point.error / candidate.error, point.error)
            point = self._front.reverted(point, limit)
        return None

    # -- what is fastest, and what is said ----------------------------------------------------

    def _fastest(
        self, candidates: Sequence[Candidate]
    ) -> tuple[Candidate | None, Mapping[str, float]]:
        """The fastest candidate if it is faster than float32, else None, and the seconds of all."""
        if not candidates:
            return None, {}
        named = {f"types {number}": candidate for number, candidate in enumerate(candidates)}
        processes = [self._float32]
        for name, candidate in named.items():
            if candidate.folder is not None:
                process = self._candidates.process(name, candidate.folder)
                processes.append(self._stack.enter_context(process))
        inputs = self._candidates.samples[0].inputs
        with self._clock.during(TIMING):
            medians = median_seconds(processes, inputs, threads=self._steps.threads)
        seconds = {name: median for name, median in medians.items() if median is not None}
        name = min(seconds, key=seconds.__getitem__, default=FLOAT32)
        by_types = {FLOAT32: seconds.get(FLOAT32, math.inf)}
        for key, candidate in reversed(named.items()):
            words = dtype_counts_text(candidate.point.types, self._fusions)
            if key in seconds:
                by_types[words] = min(seconds[key], by_types.get(words, math.inf))
        return named.get(name), by_types

    def _summary(self, best: Candidate | None, seconds: Mapping[str, float]) -> str:
        """A sentence with the chosen dtypes and the reason."""
        bound = self._bounds()
        others = ", ".join(f"{words.in_seconds(took)} in {name}" for name, took in seconds.items())
        if best is not None:
            counted = best.point.dtype_counts(self._fusions).items()
            counts = ", ".join(f"{count} in {kind}" for kind, count in counted)
            operators = f"of {self._fusions} operators {counts}"
            return f"{operators}; error {best.error:.1e}{bound and f', {bound}'} ({others})"
        if seconds:
            return f"{FLOAT32}, since nothing else is faster ({others})"
        if len(self._front.points) == 1:
            kinds = " or ".join(self._settled.types)
            return f"{FLOAT32}, since no operator was measured to be faster in {kinds}"
        return f"{FLOAT32}, since nothing faster holds the bound: {bound or 'finite outputs'}"

    def _bounds(self) -> str:
        """A phrase with the bounds of the pipeline."""
        precision = self._precision
        bounds = []
        if precision.max_error is not None:
            bounds.append(f"at most {precision.max_error:g} is allowed")
        if precision.metric is not None:
            bounds.append(f"a drop of {precision.max_drop:g} of {precision.metric} is allowed")
        return " and ".join(bounds)

    def _write_manifest(self, folder: Path, best: Candidate | None, result: NetworkResult) -> None:
        manifest = {**read_manifest(folder), "precision": precision_facts(result)}
        if best is not None:
            manifest["verification"] = {
                "reference": self._steps.baselines.reference.name,
                "unverified": self._steps.baselines.unverified,
                "samples": len(self._candidates.samples),
                "tolerance": self._precision.max_error,
                "max_relative_error": best.error,
            }
        write_manifest(folder, manifest)
