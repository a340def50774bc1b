"""Times delivered networks beside frameworks that run them, in one or several precisions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import FLOAT32, ChameleonError
from chameleon_tvm.api import INT8, one_line

from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._comparison.reduced_precision import (
    ComputedPrecision,
    ReducedComparison,
    ReducedFrameworks,
    max_relative_error,
    reduced_comparison,
    reduces_by_default,
)
from chameleon_networks._evaluation.latency import Rounds, time_in_turns
from chameleon_networks._evaluation.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
    reference_process,
)
from chameleon_networks._importers.imported_network import ImportedNetwork

log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class FrameworkTimes:
    """The result of timing networks side by side.

    Attributes:
        times: The seconds of each turn of each network, by name; see ``latency.Rounds``.
        about: The precision and the error of each network that was timed, by name. Empty if only
            networks in their original precision were compared.
        left_out: The reason why each network that was not timed is missing, by name.
    """

    times: Rounds
    about: Mapping[str, ComputedPrecision]
    left_out: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Compared:
    """The networks to time side by side.

    Attributes:
        ours: The folders of delivered networks, by their names in results.
        bucket: The bucket of shapes in which the networks are timed; empty if there is one shape.
        names: Names of the frameworks to run the network in float32.
        precisions: Reduced precisions in which frameworks run the network as well. If empty, these
            are the precisions other than float32 that frameworks choose by default.
        calibrate: The source of calibration inputs; None for random ones.
        rounds: Number of turns of each network.
    """

    network: ImportedNetwork
    ours: Mapping[str, Path]
    bucket: str = ""
    names: Sequence[str]
    precisions: Sequence[str] = ()
    calibrate: str | None = None
    threads: int
    rounds: int


def compare_networks(asked: Compared) -> FrameworkTimes:
    """Time networks in turns, each in a separate process."""
    left_out: dict[str, str] = {}
    about: dict[str, ComputedPrecision] = {}
    inputs = asked.network.samples(np.random.default_rng(0))
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(delivered_process(name, folder, threads=asked.threads))
            for name, folder in asked.ours.items()
        ]
        for name in asked.names:
            try:
                process = framework_process(asked.network, name, threads=asked.threads)
            except ChameleonError as error:
                log.warning("network_not_run", by=name, problem=str(error))
                left_out[name] = one_line(error)
            else:
                processes.append(stack.enter_context(process))
        if asked.precisions or reduces_by_default(asked.network, processes):
            with _reference(asked, processes) as reference:
                request = reduced_comparison(
                    asked.network, asked.precisions, asked.calibrate, reference.outputs
                )
            about = _with_errors(asked, processes, request, left_out)
            processes = [process for process in processes if process.name in about]
            rivals = ReducedFrameworks(asked.network, request, threads=asked.threads, stack=stack)
            processes += rivals.opened()
            about |= rivals.about
            left_out |= rivals.left_out
        times = time_in_turns(processes, inputs, threads=asked.threads, rounds=asked.rounds)
    failed = {name: "it failed while it was timed" for name, turns in times.items() if not turns}
    return FrameworkTimes(
        times=times,
        about={name: computed for name, computed in about.items() if name not in failed},
        left_out=left_out | failed,
    )


def delivered_precision(folder: Path, network: ImportedNetwork) -> NetworkResult:
    """The dtypes of a delivered network, from its manifest, as a result without times."""
    said = read_manifest(folder).get("precision")
    if said is not None:
        return NetworkResult.from_json(said)
    return _single_precision(INT8 if network.quantized else FLOAT32)


def _single_precision(precision: str) -> NetworkResult:
    return NetworkResult(precision=precision, precisions=(precision,))


def _reference(
    asked: Compared, processes: Sequence[NetworkProcess]
) -> contextlib.AbstractContextManager[NetworkProcess]:
    """The process of the reference in float32, which is opened for now if it is not timed."""
    name = asked.network.references[0]
    timed = next((process for process in processes if process.name == name), None)
    if timed is not None:
        return contextlib.nullcontext(timed)
    inputs = asked.network.samples(np.random.default_rng(0))
    return reference_process(asked.network, inputs, threads=asked.threads)


def _with_errors(
    asked: Compared,
    processes: Sequence[NetworkProcess],
    request: ReducedComparison,
    left_out: dict[str, str],
) -> dict[str, ComputedPrecision]:
    """The precision and the error of each process whose outputs are finite, by its name."""
    about = {}
    for process in processes:
        name = process.name
        folder, own = asked.ours.get(name), asked.network.precision_of(name)
        facts = (
            delivered_precision(folder / asked.bucket, asked.network)
            if folder
            else _single_precision(own)
        )
        try:
            error = max_relative_error(process.outputs, request.samples, request.expected)
        except ChameleonError as problem:
            log.warning("network_not_compared", network=name, problem=str(problem))
            left_out[name] = one_line(problem)
            continue
        process.pause()
        about[name] = ComputedPrecision(
            asked=facts.precision,
            precision=facts.precision,
            max_relative_error=error,
            precisions=tuple(facts.precisions),
        )
    return about
