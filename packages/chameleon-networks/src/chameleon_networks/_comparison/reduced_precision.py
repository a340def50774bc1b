"""Frameworks that run a network in reduced precision, with their errors against float32."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import FLOAT32, Arrays, ChameleonError
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import display_name, one_line

from chameleon_networks._evaluation.messages import write_batches
from chameleon_networks._evaluation.processes import NetworkProcess, reduced_process
from chameleon_networks._evaluation.verify import Run, Sample, compare_all, magnitudes
from chameleon_networks._frameworks import AS_IT_COMES
from chameleon_networks._frameworks.reduced_precision import missing_packages, select_frameworks
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._quantize.calibration_batches import HELD_OUT_BATCHES, batches_of


def reduced_comparison(
    network: ImportedNetwork, precisions: Sequence[str], source: str | None, run: Run
) -> ReducedComparison:
    """Prepare inputs to compare a network with frameworks that run it in reduced precisions."""
    named = precisions or (AS_IT_COMES,)
    calibrated = any(form.calibrated for form in select_frameworks(network.forms, named))
    batches = batches_of(network, source) if calibrated else None
    calibration = [] if batches is None else list(batches)
    # The user's batches can be read only once.
    samples = batches.samples if batches and source else held_out_samples(network, source)
    return ReducedComparison(
        precisions=named,
        by_default=not precisions,
        calibration=calibration,
        samples=samples,
        expected=[sample.run(run) for sample in samples],
    )


def held_out_samples(network: ImportedNetwork, source: str | None) -> list[Sample]:
    """The inputs on which errors are measured, which calibration does not use."""
    if source is None:
        return [
            Sample(inputs=network.samples(np.random.default_rng(seed)))
            for seed in range(HELD_OUT_BATCHES)
        ]
    batches = batches_of(network, source)
    for _ in batches:
        pass
    return batches.samples


log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class ReducedComparison:
    """The precisions in which frameworks run a network for a comparison, and the inputs for it.

    Attributes:
        precisions: Some of ``frameworks.PRECISIONS``.
        by_default: Whether frameworks only count if they compute in a reduced dtype by default.
        calibration: The inputs of several inferences to calibrate with, the same for all
            frameworks. Empty if no framework needs calibration.
        samples: The inputs on which errors are measured.
        expected: The reference's outputs in float32 for each sample, without the part that belongs
            to padding.
    """

    precisions: Sequence[str]
    by_default: bool = False
    calibration: Sequence[Arrays]
    samples: Sequence[Sample]
    expected: Sequence[Arrays]


def compared_precisions(types: Sequence[str]) -> tuple[str, ...]:
    """The precisions in which frameworks are compared with a network that uses some dtypes."""
    reduced = tuple(kind for kind in dict.fromkeys(map(display_name, types)) if kind != FLOAT32)
    return (*reduced, AS_IT_COMES) if reduced else ()


def reduces_by_default(network: ImportedNetwork, processes: Sequence[NetworkProcess]) -> bool:
    """Whether a framework reduces precision here by default and the source is not quantized."""
    defaults = {process.answer.get("default", FLOAT32) for process in processes}
    return defaults - {FLOAT32} != set() and not network.quantized


@attrs.frozen(kw_only=True)
class ComputedPrecision:
    """The precision that a network is computed in, with its error.

    Attributes:
        asked: The precision that Chameleon requested.
        precision: The actual precision, as the framework or the delivered network reports it.
        max_relative_error: The error of the network's outputs against float32.
        precisions: The dtypes of the operators of a delivered network.
    """

    asked: str
    precision: str
    max_relative_error: float
    precisions: tuple[str, ...] = ()


class ReducedFrameworks:
    """Frameworks in reduced precision, opened one by one, as quantizing takes much memory.

    Attributes:
        about: The precision and the error of each framework that was opened, by name.
        left_out: The reason why each framework that was not timed is missing, by name.
    """

    def __init__(
        self,
        network: ImportedNetwork,
        request: ReducedComparison,
        *,
        threads: int,
        stack: contextlib.ExitStack,
    ) -> None:
        self._network = network
        self._request = request
        self._threads = threads
        self._stack = stack
        self._chosen = {
            form.name: form for form in select_frameworks(network.forms, request.precisions)
        }
        self.about: dict[str, ComputedPrecision] = {}
        self.left_out = missing_packages(network.forms, list(self._chosen.values()))
        scratch = temporary_folder()
        self._calibration = Path(stack.enter_context(scratch), "inputs.arrays")
        write_batches(self._calibration, request.calibration)

    def opened(self, in_time: Callable[[], bool] = lambda: True) -> list[NetworkProcess]:
        """Open the frameworks while there is time; the processes whose outputs are finite."""
        processes = []
        for name in self._chosen:
            if name in self.left_out:
                continue
            if not in_time():
                self.left_out[name] = NetworkResult.TIME_IS_OVER
                continue
            log.info("opening_reduced_network", by=name)
            try:
                process = self._open(name)
            except ChameleonError as error:
                log.warning("network_not_run", by=name, problem=str(error), hint=error.hint)
                self.left_out[name] = one_line(error)
                continue
            if self._request.by_default and self.about[name].precision == FLOAT32:
                del self.about[name]
                process.close()
            else:
                processes.append(process)
        return processes

    def _open(self, name: str) -> NetworkProcess:
        """Open a framework, and compare its outputs with those in float32."""
        process = self._stack.enter_context(
            reduced_process(
                self._network,
                name,
                (self._calibration, len(self._request.calibration)),
                threads=self._threads,
                warm_up=[self._request.samples[0].inputs],
            )
        )
        try:
            error = max_relative_error(
                process.outputs, self._request.samples, self._request.expected
            )
        except ChameleonError:
            process.close()
            raise
        process.pause()
        self.about[name] = ComputedPrecision(
            asked=self._chosen[name].precision,
            precision=process.answer["precision"],
            max_relative_error=error,
        )
        return process

    def results(self, seconds: Mapping[str, float | None]) -> dict[str, NetworkResult.Rival]:
        """The precision, seconds and error of each framework that was timed, by name."""
        times = {}
        for name, about in self.about.items():
            if (took := seconds.get(name)) is not None:
                times[name] = NetworkResult.Rival(
                    asked=about.asked,
                    precision=about.precision,
                    seconds=took,
                    max_relative_error=about.max_relative_error,
                )
            else:
                self.left_out[name] = "it failed while it was timed"
        return times


def sum_reduced_times(results: Sequence[NetworkResult]) -> dict[str, NetworkResult.Rival]:
    """Sum the times, and take the largest errors, of frameworks timed in every bucket."""
    times = [result.rivals_reduced for result in results]
    return {
        name: attrs.evolve(
            rival,
            seconds=sum(bucket[name].seconds for bucket in times),
            max_relative_error=max(bucket[name].max_relative_error or 0.0 for bucket in times),
        )
        for name, rival in times[0].items()
        if all(name in bucket for bucket in times)
    }


def max_relative_error(run: Run, samples: Sequence[Sample], expected: Sequence[Arrays]) -> float:
    """The largest |difference| over the largest |expected| output, of all samples."""
    check = compare_all(
        (sample.run(run) for sample in samples),
        expected,
        tolerance=float("inf"),
        scales=magnitudes(expected),
    )
    error = check.max_relative_error
    if error is None:
        raise ChameleonError(str(check.problem))
    if not np.isfinite(error):
        raise ChameleonError("its outputs are not finite, and those in float32 are")
    return error
