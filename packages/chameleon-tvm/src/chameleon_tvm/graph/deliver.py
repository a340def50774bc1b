"""From the winners of a run to a verified network in a folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from chameleon_core.stages import Delivery

from chameleon_tvm.graph.guesses import mended
from chameleon_tvm.graph.making import Making
from chameleon_tvm.graph.package import (
    check_compiler,
    check_target,
    read_manifest,
    write_manifest,
)
from chameleon_tvm.graph.verify import SAMPLES

if TYPE_CHECKING:
    from chameleon_tvm.frontends.networks import NetworkFrontend

log = structlog.get_logger()


def delivered(frontend: NetworkFrontend, delivery: Delivery) -> dict[str, Any]:
    """Compile, verify and time a network; only what gives the right answers gets into the folder.

    It is there as soon as it is verified; what it takes is written into its manifest later.

    Args:
        frontend: the network.
        delivery: what to compile it with, and where to.

    Returns:
        See ``Frontend.deliver``.

    Raises:
        ChameleonError: it cannot be compiled at all, or nothing can check it.
    """
    started = time.perf_counter()
    check_target(delivery.target)
    check_compiler()
    with contextlib.ExitStack() as stack:
        made = Making(frontend, delivery, stack)
        staged, result = verified(made, frontend)
        if staged is None:
            return result
        # Timing the rivals takes longer than compiling, and whoever interrupts it has a network.
        replace(staged, delivery.folder)
        result["delivered_seconds"] = time.perf_counter() - started
        log.info("network_delivered", folder=str(delivery.folder))
        ours = stack.enter_context(made.running(staged))
        result.update(made.latencies(ours))
        result["kernels"] = made.kernel_seconds(ours, staged)
        write_manifest(delivery.folder, {**read_manifest(staged), "latency": result})
    return {**result, "folder": str(delivery.folder)}


def verified(made: Making, frontend: NetworkFrontend) -> tuple[Path | None, dict[str, Any]]:
    """Compile and verify a network.

    Args:
        made: its delivery.
        frontend: the network.

    Returns:
        The folder that it is in for now, with its whole manifest, or None where it is not to be
        delivered; and what there is to say about it, ``failure`` among it.
    """
    staged = made.best_in_place() if frontend.options.in_place else None
    if staged is None:
        staged, verdict = made.tried(made.kernels, "network")
    else:
        verdict = made.verdict(staged)
    staged, verdict = mended(made, staged, verdict)
    result: dict[str, Any] = {
        "latency_seconds": None,
        "untuned_seconds": None,
        "rivals": {},
        "max_relative_error": verdict.max_relative_error,
        "reference": made.baselines.reference.name,
        "layout": frontend.choice.to_json(),
        "unmeasured": made.unmeasured(),
        "failure": None,
    }
    if staged is None or verdict.problem is not None:
        return None, {**result, "failure": made.accuse(verdict)}
    verification: dict[str, Any] = {
        "reference": made.baselines.reference.name,
        "samples": SAMPLES,
        "tolerance": made.expected.tolerance,
        "max_relative_error": verdict.max_relative_error,
    }
    if made.expected.conditioning is not None:
        why = made.expected.conditioning.sentence(made.baselines.reference.name)
        verification["conditioning"] = result["conditioning"] = why
        log.warning("rounding_is_large", why=why)
    if frontend.half is not None:
        own = made.in_own_precision(staged, frontend.half)
        verification["own_precision"] = result["own_precision"] = own
        if own.get("problem"):
            return None, {**result, "failure": f"the network is not delivered: {own['problem']}"}
    # What the package says of its weights stays.
    manifest = {**read_manifest(staged), **made.manifest(), "verification": verification}
    write_manifest(staged, manifest)
    return staged, result


def replace(staged: Path, folder: Path) -> None:
    """Put a finished folder in its place; an earlier one is removed."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(staged, part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
