"""Delivers a network: compiles it with the winners of a run, verifies it, and writes a folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import attrs
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import Delivery
from chameleon_system.api import replace_folder

from chameleon_networks._artifact.load import inner_folders
from chameleon_networks._artifact.shared_weights import share_weights
from chameleon_networks._artifact.sources import sources_for
from chameleon_networks._artifact.writer import read_manifest, write_manifest, write_state
from chameleon_networks._compile.sequence.weights import WEIGHTS, link_weights
from chameleon_networks._delivery.delivery_steps import (
    DeliverableNetwork,
    DeliverySteps,
    find_wrong_kernels,
)
from chameleon_networks._delivery.levels import add_levels
from chameleon_networks._delivery.mixed_precision.delivery import choose_dtypes
from chameleon_networks._delivery.vector_kernels import add_vector_kernels
from chameleon_networks._evaluation.latency import measure_footprint
from chameleon_networks._evaluation.verify import SAMPLES, OutputCheck
from chameleon_networks._names import signature_with_names

log = structlog.get_logger()

TURNS = 3
"""Number of turns that replace only the kernels that cause wrong outputs. The next turn gives up
all guesses, because each search for the cause compiles the network several times."""


def repaired(
    steps: DeliverySteps, staged: Path | None, verdict: OutputCheck
) -> tuple[Path | None, OutputCheck]:
    """Replace kernels that may be wrong until the network's outputs are right.

    These are kernels that were never checked (guesses), and those of algorithms with large rounding
    errors. Such errors may be small enough for an operator, and too large for the network.
    """
    turn, blamed = 0, False
    while verdict.problem is not None:
        winners = steps.kernels.winners
        ranks = {key: steps.kernels.rounding_rank(winner) for key, winner in winners.items()}
        rounded = [key for key, rank in ranks.items() if 0 < rank == max(ranks.values())]
        suspects = [key for key in winners if ranks[key] or not winners[key].checked]
        # Rounding errors of many layers add up, so a second search would blame the next layer.
        if suspects and turn < TURNS and not (rounded and blamed):
            wrong = find_wrong_kernels(steps, suspects)
        else:
            wrong = rounded or suspects
        if not wrong:
            break
        for key in wrong:
            winner = winners[key]
            before = "guess before"
            if winner.measured:
                before = "record of another run" if winner.recorded else "fastest kernel"
            log.warning("kernel_replaced", task=winner.task.name, problem=verdict.problem)
            steps.replaced[key] = f"with the {before}, {verdict.problem}"
        blamed = blamed or not set(rounded).isdisjoint(wrong)
        give_up = turn >= TURNS and not rounded
        steps.kernels = steps.kernels.with_next_guesses(wrong, give_up=give_up)
        staged, verdict = steps.tried(steps.kernels, f"repaired-{turn}")
        turn += 1
    return staged, verdict


def delivered(settled: DeliverableNetwork, delivery: Delivery) -> NetworkResult:
    """Compile and verify a network, write its folder if its outputs are right, and then time it."""
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        steps = DeliverySteps(settled, delivery, stack)
        staged, result = verified(steps, settled)
        if staged is None:
            return result
        staged, result = choose_dtypes(steps, settled.precision, staged, result)
        result = attrs.evolve(result, vectors=add_vector_kernels(steps, staged))
        result = attrs.evolve(result, levels=add_levels(steps, staged))
        manifest = read_manifest(staged)
        inner = [staged / name for name in inner_folders(manifest)]
        if inner:
            share_weights(staged, [staged, *inner])
            manifest = read_manifest(staged)
        network = settled.network
        inputs = network.input_names()
        inputs[len(inputs) - len(network.state) :] = network.state
        names = signature_with_names(manifest, inputs, network.returned)
        if network.state and network.example_inputs is not None:
            names = {**names, "state": network.state}
            write_state(staged, network.example_inputs[-len(network.state) :])
        sources = sources_for(delivery.folder, network.sources)
        write_manifest(staged, {**manifest, **names, **sources})
        # Timing the rivals takes longer than compiling. A user who interrupts it already has the
        # network.
        replace(staged, delivery.folder)
        seconds, each = time.perf_counter() - started, steps.seconds.until_now()
        result = attrs.evolve(result, delivered_seconds=seconds, delivery_seconds=each)
        log.info("network_delivered", folder=str(delivery.folder))
        steps.keep()
        ours = stack.enter_context(steps.running(staged))
        result = steps.timed(result, ours)
        compare, in_time = settled.network.options.compare, steps.baselines.has_time()
        footprint = {"network": measure_footprint(delivery.folder)} if compare and in_time else {}
        if compare and not in_time:
            left_out = {**result.left_out, "the footprint": NetworkResult.TIME_IS_OVER}
            result = attrs.evolve(result, left_out=left_out)
        footprint |= result.footprint
        kernels = steps.kernel_seconds(ours)
        result = attrs.evolve(result, footprint=footprint, kernels=kernels)
        write_manifest(delivery.folder, {**read_manifest(staged), "latency": result.to_json()})
    return attrs.evolve(result, folder=str(delivery.folder))


def verified(
    steps: DeliverySteps, settled: DeliverableNetwork
) -> tuple[Path | None, NetworkResult]:
    """Compile and verify a network in its source's dtypes; no folder if it fails."""
    staged = steps.choose_kernels_in_network() if settled.network.options.in_place else None
    if staged is None:
        staged, verdict = steps.tried(steps.kernels, "network")
    else:
        verdict = steps.verdict(staged, steps.kernels)
    staged, verdict = repaired(steps, staged, verdict)
    if staged is not None and verdict.problem is not None:
        verdict = steps.arbitrated(staged, verdict)
    reference = steps.answers.reference
    result = NetworkResult(
        max_relative_error=verdict.max_relative_error,
        reference=reference,
        reference_day=None if settled.answered else steps.answers.day,
        unverified=steps.baselines.unverified,
        disagreement=steps.disagreement,
        layout=NetworkResult.Layout(**settled.choice.to_json()),
        unmeasured=steps.unmeasured(),
    )
    if staged is None or verdict.problem is not None:
        return None, attrs.evolve(result, failure=steps.explain_failure(verdict))
    if result.disagreement is not None:
        log.warning("reference_is_wrong", why=result.disagreement)
    if result.unverified is not None:
        log.warning("network_not_verified", why=result.unverified)
    why = steps.expected.remark(reference)
    if why is not None:
        result = attrs.evolve(result, conditioning=why)
        log.warning("rounding_is_large", reason=why)
    if settled.network.half is not None:
        own = steps.check_in_source_precision(staged, settled.network.half)
        failure = own.problem and f"the network is not delivered: {own.problem}"
        result = attrs.evolve(result, own_precision=own, failure=failure)
        if failure:
            return None, result
    fields = (
        *("reference", "reference_day", "unverified", "disagreement"),
        *("max_relative_error", "conditioning", "own_precision"),
    )
    verification = {
        "samples": SAMPLES,
        "tolerance": steps.expected.tolerance_of_parts,
        **{name: value for name, value in result.to_json().items() if name in fields},
    }
    # The manifest's entries about weights stay as they are.
    manifest = {**read_manifest(staged), "verification": verification}
    write_manifest(staged, manifest)
    return staged, result


def replace(staged: Path, folder: Path) -> None:
    """Copy a finished folder to its place in one step, past readers of an earlier one."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        shutil.copytree(staged, part, copy_function=_copied)
        replace_folder(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copied(source: str, target: str) -> None:
    copy = link_weights if Path(source).name == WEIGHTS else shutil.copy2
    copy(Path(source), Path(target))
