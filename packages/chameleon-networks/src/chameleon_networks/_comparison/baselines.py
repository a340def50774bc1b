"""Runs a network with frameworks, and with TVM without tuning, to compare a delivered network."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import (
    FLOAT32,
    Arrays,
    ChameleonError,
    Delivery,
    fall_back,
)
from chameleon_tvm.api import one_line, telling_line

from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._comparison.reduced_precision import (
    ReducedComparison,
    ReducedFrameworks,
    reduces_by_default,
)
from chameleon_networks._compile.compile import compile_baseline
from chameleon_networks._compile.unsupported_operator import empty_kernels
from chameleon_networks._evaluation.latency import Rounds, medians_of, time_in_turns
from chameleon_networks._evaluation.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
    reasons,
)
from chameleon_networks._evaluation.verify import perturbed
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import tvm
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.imported_network import ImportedNetwork

log = structlog.get_logger()

_RESAMPLES = 2000
"""Number of bootstrap resamples."""

_LEAST_WAIT = 0.1
"""Seconds in which a process answers that has opened its network already."""

UNTUNED = "untuned"
"""The name of the network that TVM compiles without a tuner."""


class Baselines:
    """Runs a network with frameworks and with TVM's default schedules, each in a separate process.

    Attributes:
        left_out: The reason why each framework that was not timed is missing, by name.
        unverified: The reason why the reference is TVM itself. None if it is not, or is not known.
    """

    def __init__(
        self,
        network: ImportedNetwork,
        delivery: Delivery,
        scratch: Path,
        stack: contextlib.ExitStack,
        *,
        warm_up: Sequence[Arrays] | None = (),
        reader: NetworkProcess | None = None,
    ) -> None:
        self._network = network
        self._delivery = delivery
        self._folder = scratch / UNTUNED
        self._stack = stack
        self.left_out = dict(network.left_out) if network.options.compare else {}
        self._reader = None if reader is None else stack.enter_context(reader)
        self._warm_up = warm_up or ()
        self.times_untuned = True
        self.unverified: str | None = None
        self._deadline = math.inf
        if warm_up is not None:
            _ = self._first

    @cached_property
    def _first(self) -> NetworkProcess:
        if self._reader is not None:
            return self._reader
        process = self._process(self._network.references[0], warm_up=self._warm_up, wait=False)
        return self._stack.enter_context(process)

    def _process(self, name: str, **options: Any) -> NetworkProcess:
        """Start a process that runs the network with a framework."""
        return framework_process(self._sharing, name, threads=self._delivery.threads, **options)

    @cached_property
    def _sharing(self) -> ImportedNetwork:
        """The network with the files of its programs, which else each process exports."""
        with contextlib.suppress(ChameleonError):
            # The reference has answered its earlier requests, so it can be asked for its programs.
            if self._reader is not None and self.reference is self._reader:
                self._network.programs = {**self._network.programs, **self._reader.programs()}
        return self._network

    @cached_property
    def reference(self) -> NetworkProcess:
        """The process of the first reference that runs, or else of TVM without tuning."""
        problems: dict[str, ChameleonError] = {}
        try:
            self._first.opened()
        except ChameleonError as error:
            if self._reader is not None:  # the system may have killed it for its memory
                log.debug("reference_restarted", problem=str(error))
                self._reader = None
                del self._first
                return self.reference
            self._not_run(self._first.name, error)
            problems[self._first.name] = error
        else:
            return self._first
        for name in self._network.references[1:]:
            try:
                process = self._process(name, warm_up=self._warm_up)
            except ChameleonError as error:
                self._not_run(name, error)
                problems[name] = error
            else:
                return self._stack.enter_context(process)
        self.unverified = reasons(problems)
        untuned = self._untuned()
        if untuned is None:
            raise ChameleonError(
                f"neither {self._first.name} nor TVM without tuning can run the network",
                hint="The log says why; without a reference nothing is delivered.",
            )
        return untuned

    def restart_reference(self) -> None:
        """Let the reference start again when it is needed next, if its process has ended."""
        if not self.reference.alive:
            self._reader = None
            for name in ("reference", "_first"):
                vars(self).pop(name, None)

    def opened(self, name: str) -> NetworkProcess | None:
        """Start a process that runs the network with a framework, or return None if it fails."""
        try:
            return self._stack.enter_context(self._process(name))
        except ChameleonError as error:
            self._not_run(name, error)
            return None

    def exact(self, samples: Sequence[Arrays]) -> list[Arrays] | None:
        """The outputs in float64, or for perturbed inputs if quantized; None if impossible."""
        if self._network.has_quantized_activations:
            return [self.reference.outputs(perturbed(inputs)) for inputs in samples]
        name = self._network.exact
        if name is None or self.reference.name == UNTUNED:
            return None
        try:
            with self._process(name) as process:
                return [process.outputs(inputs) for inputs in samples]
        except ChameleonError as error:
            self._not_run(name, error)
            return None

    def timed(
        self,
        result: NetworkResult,
        ours: NetworkProcess,
        inputs: Arrays,
        reduced: ReducedComparison,
    ) -> NetworkResult:
        """Time the delivered network, TVM's untuned one, and frameworks that run it, in turns."""
        if not self._network.options.compare:
            return result
        start_time, plan = time.perf_counter(), self._delivery.plan
        processes = [ours]
        if self._runs_reference and self.reference.name in self._network.frameworks:
            processes.append(self.reference)
        processes += self._beside_the_reference(inputs)
        beside = None
        if not reduced.by_default or reduces_by_default(self._network, processes):
            threads = self._delivery.threads
            beside = ReducedFrameworks(self._network, reduced, threads=threads, stack=self._stack)
            processes += beside.opened(self.has_time)
        left = attrs.evolve(plan, seconds=plan.seconds - (time.perf_counter() - start_time))
        turns = time_in_turns(processes, inputs, threads=self._delivery.threads, plan=left)
        seconds = medians_of(turns)
        for name in self._network.frameworks:
            if name in seconds and not seconds[name]:
                self.left_out[name] = "it failed while it was timed"
        others = {name: took for name in self._network.frameworks if (took := seconds.get(name))}
        precisions = {name: self._network.precision_of(name) for name in others}
        reduced_times = {} if beside is None else beside.results(seconds)
        timed = attrs.evolve(
            result,
            footprint={
                process.name: NetworkResult.Footprint(memory_bytes=process.about()["memory_bytes"])
                for process in processes
                if process.name in others
            },
            latency_seconds=seconds[ours.name],
            untuned_seconds=seconds.get(UNTUNED),
            rivals=others,
            rivals_reduced=reduced_times,
            rivals_precision={k: kind for k, kind in precisions.items() if kind != FLOAT32},
            left_out=self.left_out | ({} if beside is None else beside.left_out),
        )
        return attrs.evolve(timed, ratio_interval=_interval(timed, turns, ours.name))

    def begin(self) -> None:
        """Begin the comparison, whose time limit counts from now on."""
        self._deadline = time.perf_counter() + self._delivery.plan.most_seconds

    def has_time(self) -> bool:
        """Whether the comparison may still begin something."""
        return time.perf_counter() < self._deadline

    @property
    def _runs_reference(self) -> bool:
        """Whether the reference runs, or may be started."""
        return "reference" in vars(self) or self.has_time()

    def _beside_the_reference(self, inputs: Arrays) -> list[NetworkProcess]:
        """Start the other processes together, since each compiles on one core for seconds."""
        known = self.reference.name if self._runs_reference else None
        names = [n for n in self._network.frameworks if n != known and n not in self.left_out]
        if not self.has_time():
            self._leave_out(*names, *([UNTUNED] if self.times_untuned else []))
            return []
        starting = [
            self._stack.enter_context(self._process(name, warm_up=[inputs], wait=False))
            for name in names
        ]
        # The networks are Chameleon's, the reference, the starting ones, and TVM's without tuning.
        of = 3 + len(starting)
        self._delivery.plan.tell("built", 2, of)
        plain = self.reference if self.reference.name == UNTUNED else None
        # With a limit, frameworks come first, since they say more.
        is_last = math.isfinite(self._deadline)
        if plain is None and self.times_untuned and not is_last:
            plain = self._untuned()
        processes = []
        for built, process in enumerate(starting, start=3):
            try:
                process.opened(max(_LEAST_WAIT, self._deadline - time.perf_counter()))
            except ChameleonError as error:
                if self.has_time():
                    self._not_run(process.name, error)
                else:
                    self._leave_out(process.name)
            else:
                processes.append(process)
            self._delivery.plan.tell("built", built, of)
        if plain is None and self.times_untuned and is_last:
            if self.has_time():
                plain = self._untuned()
            else:
                self._leave_out(UNTUNED)
        self._delivery.plan.tell("built", of, of)
        return processes if plain is None else [*processes, plain]

    def _leave_out(self, *names: str) -> None:
        self.left_out |= dict.fromkeys(names, NetworkResult.TIME_IS_OVER)

    def _untuned(self) -> NetworkProcess | None:
        """Start a process with the network that TVM compiles without tuning; None if that fails."""
        delivery = self._delivery
        kernels = empty_kernels(delivery.target)
        try:
            plain = prepare_module(self._network.imported, "NCHW")
            with warnings_once():
                executable = compile_baseline(plain, delivery.target)
            manifest = manifest_of(plain, [], kernels, delivery.target, delivery.threads)
            write_artifact(self._folder, executable, manifest)
            return self._stack.enter_context(
                delivered_process(UNTUNED, self._folder, threads=delivery.threads)
            )
        except ChameleonError as error:
            self._not_run(UNTUNED, error)
        except tvm.error.InternalError as error:  # TVM cannot compile the network by itself
            self._not_run(UNTUNED, ChameleonError(telling_line(error)))
        except Exception as error:  # noqa: BLE001 - only a comparison is lost
            fall_back("untuned_network_failed", error)
        return None

    def _not_run(self, name: str, error: ChameleonError) -> None:
        log.warning("network_not_run", by=name, problem=str(error), hint=error.hint)
        if name in self._network.frameworks:
            self.left_out[name] = one_line(error)


def _interval(result: NetworkResult, turns: Rounds, ours: str) -> tuple[float, ...]:
    """The 95 % interval of the ratio to the fastest rival, over turns; empty if it is not known."""
    rival, own = result.fastest_rival, turns.get(ours)
    others = turns.get(rival[0]) if rival else None
    if not own or not others:
        return ()
    ratios = np.array([theirs / mine for mine, theirs in zip(own, others, strict=False)])
    if len(ratios) == 1:
        return ()
    rows = np.random.default_rng(0).integers(len(ratios), size=(_RESAMPLES, len(ratios)))
    medians = np.median(ratios[rows], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)
