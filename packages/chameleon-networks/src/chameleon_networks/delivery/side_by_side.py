"""Delivered networks timed beside other programs that run them, in one precision or in several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.network_result import NetworkResult
from chameleon_tvm.types import FLOAT32, INT8
from chameleon_tvm.words import one_line

from chameleon_networks.delivery.reduced_rivals import (
    ComputedIn,
    ReducedRequest,
    ReducedRivals,
    max_relative_error,
)
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.package.package import read_manifest
from chameleon_networks.running.latency import Rounds, turn_seconds
from chameleon_networks.running.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
)
from chameleon_networks.running.verify import Run

log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class SideBySide:
    """The result of timing networks side by side.

    Attributes:
        times: seconds of each turn by name; see ``latency.Rounds``.
        about: if several precisions were asked for, ``precision``, ``asked`` and
            ``max_relative_error`` of each that was timed, by name; empty otherwise.
        left_out: why something that was to be timed was not, by name, as a part of a sentence.
    """

    times: Rounds
    about: Mapping[str, ComputedIn]
    left_out: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Compared:
    """The networks to time.

    Attributes:
        network: as its framework has it.
        ours: folders of delivered networks, by what they are called.
        bucket: of shapes, in which they are timed; empty if there is one shape.
        names: of its frameworks.
        reduced: gives the precisions beside float32, in which frameworks run it, too, for the
            reference; errors are measured then. None for float32 alone.
        threads: that all compute with.
        rounds: turns of each.
    """

    network: ImportedNetwork
    ours: Mapping[str, Path]
    bucket: str = ""
    names: Sequence[str]
    reduced: Callable[[Run], ReducedRequest] | None = None
    threads: int
    rounds: int


def side_by_side(asked: Compared) -> SideBySide:
    """Time networks in turns, each in a process of its own.

    Args:
        asked: which.

    Raises:
        ChameleonError: a delivered network cannot be opened, or errors cannot be measured since
            the reference cannot.
    """
    left_out: dict[str, str] = {}
    about: dict[str, ComputedIn] = {}
    inputs = asked.network.samples(np.random.default_rng(0))
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(delivered_process(name, folder, threads=asked.threads))
            for name, folder in asked.ours.items()
        ]
        for name in asked.names:
            process = _opened(asked, name, stack, left_out)
            processes += [] if process is None else [process]
        if asked.reduced is not None:
            with _reference(asked, processes) as reference:
                request = asked.reduced(reference.outputs)
            about, processes = _with_errors(asked, processes, request, left_out)
            rivals = ReducedRivals(asked.network, request, threads=asked.threads, stack=stack)
            opened = rivals.opened()
            processes += opened
            about |= {process.name: rivals.about(process) for process in opened}
            left_out |= rivals.left_out
        times = turn_seconds(processes, inputs, threads=asked.threads, rounds=asked.rounds)
    failed = {name: "it failed while it was timed" for name, turns in times.items() if not turns}
    return SideBySide(
        times=times,
        about={name: computed for name, computed in about.items() if name not in failed},
        left_out=left_out | failed,
    )


def result_of(folder: Path, network: ImportedNetwork) -> NetworkResult:
    """The precision that the manifest of a delivered network names.

    Args:
        folder: the network's, or that of one of its buckets.
        network: as its framework has it; if no types were chosen, it has those that it came with.
    """
    said = read_manifest(folder).get("precision")
    if said is not None:
        return NetworkResult.from_json(said)
    return _computed_in(INT8 if network.quantized else FLOAT32)


def _computed_in(precision: str) -> NetworkResult:
    return NetworkResult(precision=precision, precisions=(precision,))


def _opened(
    asked: Compared, name: str, stack: contextlib.ExitStack, left_out: dict[str, str]
) -> NetworkProcess | None:
    try:
        process = framework_process(asked.network, name, threads=asked.threads)
    except ChameleonError as error:
        log.warning("network_not_run", by=name, problem=str(error))
        left_out[name] = one_line(error)
        return None
    return stack.enter_context(process)


def _reference(
    asked: Compared, processes: Sequence[NetworkProcess]
) -> contextlib.AbstractContextManager[NetworkProcess]:
    """The reference in float32; it is opened for now if it is not among those timed."""
    name = asked.network.frameworks[0]
    timed = next((process for process in processes if process.name == name), None)
    if timed is not None:
        return contextlib.nullcontext(timed)
    return framework_process(asked.network, name, threads=asked.threads)


def _with_errors(
    asked: Compared,
    processes: Sequence[NetworkProcess],
    request: ReducedRequest,
    left_out: dict[str, str],
) -> tuple[dict[str, ComputedIn], list[NetworkProcess]]:
    """Precision and error of each that is in float32, or ours; and those that give numbers."""
    about = {}
    right = []
    for process in processes:
        name = process.name
        folder, own = asked.ours.get(name), asked.network.precision_of(name)
        facts = result_of(folder / asked.bucket, asked.network) if folder else _computed_in(own)
        try:
            error = max_relative_error(process.outputs, request.samples, request.expected)
        except ChameleonError as problem:
            log.warning("network_not_compared", network=name, problem=str(problem))
            left_out[name] = one_line(problem)
            continue
        process.pause()
        about[name] = ComputedIn(
            asked=facts.precision,
            precision=facts.precision,
            max_relative_error=error,
            precisions=tuple(facts.precisions),
        )
        right.append(process)
    return about, right
