"""Other programs that run a network in reduced precision, with their errors against float32."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.network_result import NetworkResult, RivalTime
from chameleon_core.stages import Arrays
from chameleon_tvm.types import FLOAT32, display_name
from chameleon_tvm.words import one_line

from chameleon_networks.frameworks import AS_IT_COMES
from chameleon_networks.frameworks.reduced import asked_for, left_out_reduced
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.quantize.batches import KEPT, batches_of
from chameleon_networks.running.processes import NetworkProcess, reduced_process
from chameleon_networks.running.requests import write_arrays
from chameleon_networks.running.samples import Sample
from chameleon_networks.running.verify import Run, agreement, magnitudes


def reduced_request(
    network: ImportedNetwork, precisions: Sequence[str], source: str | None, run: Run
) -> ReducedRequest:
    """How a network is compared with other programs that run it in some precisions.

    Args:
        network: as its framework has it.
        precisions: each one of ``frameworks.PRECISIONS``.
        source: of inputs to calibrate with, as for ``batches_of``.
        run: the reference in float32.

    Raises:
        ChameleonError: there are no such inputs, they are not what the network takes, or the
            reference fails.
    """
    calibrated = any(form.calibrated for form in asked_for(network.forms, precisions))
    batches = batches_of(network, source) if calibrated else None
    calibration = [] if batches is None else list(batches)
    # The user's are read once.
    samples = batches.samples if batches and source else kept_samples(network, source)
    return ReducedRequest(
        precisions=precisions,
        calibration=calibration,
        samples=samples,
        expected=[sample.cut(run(sample.inputs)) for sample in samples],
    )


def kept_samples(network: ImportedNetwork, source: str | None) -> list[Sample]:
    """Inputs that nothing is calibrated with.

    Args:
        network: as its framework has it.
        source: as for ``batches_of``.

    Raises:
        ConfigError: there are none, or they are not what the network takes.
    """
    if source is None:
        return [Sample(inputs=network.samples(np.random.default_rng(seed))) for seed in range(KEPT)]
    batches = batches_of(network, source)
    for _ in batches:
        pass
    return batches.samples


log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class ReducedRequest:
    """The precisions in which a network is compared with other programs that run it.

    Attributes:
        precisions: each one of ``frameworks.PRECISIONS``.
        calibration: inputs of some inferences, the same for all that have to be calibrated; none if
            nothing has to.
        samples: what errors are measured on.
        expected: the outputs in float32 for each of them, cut.
    """

    precisions: Sequence[str]
    calibration: Sequence[Arrays]
    samples: Sequence[Sample]
    expected: Sequence[Arrays]


def precisions_beside(types: Sequence[str]) -> tuple[str, ...]:
    """The precisions to compare a network with that is computed in some types.

    Args:
        types: names, float32 perhaps among them; that alone is compared with nothing here.
    """
    reduced = tuple(kind for kind in dict.fromkeys(map(display_name, types)) if kind != FLOAT32)
    return (*reduced, AS_IT_COMES) if reduced else ()


@attrs.frozen(kw_only=True)
class ComputedIn:
    """The precision that a network is computed in.

    Attributes:
        asked: the precision that was asked for.
        precision: what it is, as the framework or the delivered network says.
        max_relative_error: of its outputs against float32.
        precisions: of a delivered network, the types of its operators.
    """

    asked: str
    precision: str
    max_relative_error: float
    precisions: tuple[str, ...] = ()


class ReducedRivals:
    """Other programs that run a network in reduced precision, each in a process of its own.

    They are opened one after the other: to quantize a network takes several times its memory.

    Args:
        network: as its framework has it.
        request: what is asked for.
        threads: that all compute with.
        stack: processes and files end with it.

    Attributes:
        left_out: why something that may run the network so was not timed, by name.
    """

    def __init__(
        self,
        network: ImportedNetwork,
        request: ReducedRequest,
        *,
        threads: int,
        stack: contextlib.ExitStack,
    ) -> None:
        self._network = network
        self._request = request
        self._threads = threads
        self._stack = stack
        self._chosen = {form.name: form for form in asked_for(network.forms, request.precisions)}
        self._errors: dict[str, float] = {}
        self._opened: dict[str, NetworkProcess] = {}
        self.left_out = left_out_reduced(network.forms, list(self._chosen.values()))
        scratch = tempfile.TemporaryDirectory(prefix="chameleon-calibration-")
        self._calibration = Path(stack.enter_context(scratch), "inputs.npz")
        write_arrays(
            self._calibration, [array for inputs in request.calibration for array in inputs]
        )

    def opened(self) -> list[NetworkProcess]:
        """Those that can be opened and give numbers."""
        for name in self._chosen:
            if name in self.left_out:
                continue
            log.info("opening_reduced_network", by=name)
            try:
                self._open(name)
            except ChameleonError as error:
                log.warning("network_not_run", by=name, problem=str(error), hint=error.hint)
                self.left_out[name] = one_line(error)
        return list(self._opened.values())

    def _open(self, name: str) -> None:
        """Open one of them and compare its answers with those in float32.

        Raises:
            ChameleonError: it cannot be opened, or its answers cannot be compared.
        """
        process = self._stack.enter_context(
            reduced_process(
                self._network,
                name,
                (self._calibration, len(self._request.calibration)),
                threads=self._threads,
                warm_up=self._request.samples[0].inputs,
            )
        )
        try:
            self._errors[name] = max_relative_error(
                process.outputs, self._request.samples, self._request.expected
            )
        except ChameleonError:
            process.close()
            raise
        process.pause()
        self._opened[name] = process

    def results(self, seconds: Mapping[str, float | None]) -> dict[str, RivalTime]:
        """The result of each that was timed, by name.

        Args:
            seconds: of one inference of each network by its name; None for one that failed.
        """
        times = {}
        for name, process in self._opened.items():
            if (took := seconds.get(name)) is not None:
                about = self.about(process)
                times[name] = RivalTime(
                    asked=about.asked,
                    precision=about.precision,
                    seconds=took,
                    max_relative_error=about.max_relative_error,
                )
            else:
                self.left_out[name] = "it failed while it was timed"
        return times

    def about(self, process: NetworkProcess) -> ComputedIn:
        """The precision and error of one of ``opened`` before it is timed."""
        return ComputedIn(
            asked=self._chosen[process.name].precision,
            precision=str(process.precision),
            max_relative_error=self._errors[process.name],
        )


def reduced_of_all(results: Sequence[NetworkResult]) -> dict[str, RivalTime]:
    """One inference in each bucket by what was timed in all of them, with its largest error.

    Args:
        results: of each bucket.
    """
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
    """The largest |difference| over the largest |expected| of a network's outputs, of all samples.

    Args:
        run: the network.
        samples: what it is measured on.
        expected: the outputs in float32 for each, cut.

    Raises:
        ChameleonError: it gives no finite numbers of the shapes expected, or none at all.
    """
    worst, scales = 0.0, magnitudes(expected)
    for sample, wanted in zip(samples, expected, strict=True):
        got = sample.cut(run(sample.inputs))
        verdict = agreement(got, wanted, tolerance=float("inf"), scales=scales)
        error = verdict.max_relative_error
        if verdict.problem is not None or error is None:
            raise ChameleonError(str(verdict.problem))
        if not np.isfinite(error):
            raise ChameleonError("its outputs are not finite, and those in float32 are")
        worst = max(worst, error)
    return worst
