"""Chooses kernels that need no permission, for systems that refuse it and CPUs without tiles.

A network whose kernels use AMX's tiles is delivered with a second library. It has kernels that use
vectors instead, and makes their packed weights of those of the tile kernels.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import structlog
from chameleon_core.plugin_api import FLOAT32, ChameleonError, Delivery, fall_back
from chameleon_tvm.api import first_line, permissions_of, target_without

from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._c_runtime.linking import OBJECTS
from chameleon_networks._compile.kernels import Kernels, OperatorKernel
from chameleon_networks._delivery.delivery_steps import DeliverySteps, GraphWithKernels
from chameleon_networks._delivery.other_kernels import (
    OtherKernels,
    sharing_weights,
    write_other_kernels,
)
from chameleon_networks._evaluation.processes import delivered_process

log = structlog.get_logger()

VECTORS = "vectors"
"""Name of the folder, in a network's folder, with kernels that need no permission."""

COMPILING = "compiling vector kernels"
"""Name of the step of a delivery."""


def add_vector_kernels(steps: DeliverySteps, folder: Path) -> str | None:
    """Add kernels that need no permission to a network's folder; say how many, or why not.

    The result is None if none of the network's kernels needs a permission, or if the pipeline asks
    for no such kernels.
    """
    manifest = read_manifest(folder)
    permissions = frozenset(manifest.get("permissions", ()))
    if not permissions or not steps.settled.network.options.vectors:
        return None
    asked = " and ".join(sorted(permissions)).upper()
    problem, count = "", 0
    if reason := manifest["virtual_machine"]:
        problem = f"TVM's virtual machine runs it, because {reason}"
    else:
        with steps.seconds.during(COMPILING):
            try:
                count = _add(steps, folder, permissions)
            except ChameleonError as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001 - the network itself is verified
                fall_back("vector_kernels_not_compiled", error)
                problem = first_line(error)
    if problem:
        shutil.rmtree(folder / VECTORS, ignore_errors=True)
        log.warning("vector_kernels_not_delivered", permissions=asked, problem=problem)
        return f"the network loads only where the system permits {asked}, since {problem}"
    write_manifest(folder, {**manifest, "vectors": VECTORS})
    return f"without {asked}, {count} of its kernels run with vectors instead"


def _add(steps: DeliverySteps, folder: Path, permissions: frozenset[str]) -> int:
    """Compile and verify kernels that need no permission; return how many were replaced.

    Raises:
        ChameleonError: There are no such kernels, or their outputs are wrong.
    """
    graph, inner = steps.compiled[folder], folder / VECTORS
    chosen, target = write_vector_kernels(inner, graph, steps.target, steps.threads, permissions)
    with delivered_process(VECTORS, inner, threads=steps.threads) as process:
        facts = {"target": target, "repackings": chosen.repackings}
        problem = steps.problem_of(process, steps.search(chosen.kernels, **facts))
    if problem is not None:
        raise ChameleonError(f"their outputs are wrong: {problem}")
    return chosen.replaced


def write_vector_kernels(
    folder: Path, graph: GraphWithKernels, target: str, threads: int, permissions: frozenset[str]
) -> tuple[OtherKernels, str]:
    """Write a network's folder with kernels that need no permission; return them and their target.

    Raises:
        ChameleonError: There are no such kernels.
    """
    chosen = vector_kernels(graph)
    float32 = all(getattr(fusion.spec, "dtype", FLOAT32) == FLOAT32 for fusion in graph.fusions)
    without = target_without(target, permissions, float32=float32)
    write_other_kernels(folder, graph, chosen, without, threads)
    if graph.dimension is None:
        (folder / OBJECTS).unlink()  # a bundle for C of a fixed shape has the other kernels alone
    return chosen, without


def vector_kernels(graph: GraphWithKernels) -> OtherKernels:
    """Replace the kernels that need a permission by the fastest measured ones, or first guesses.

    Raises:
        ChameleonError: A task has no kernel without a permission.
    """
    candidates = partial(_candidates, graph.kernels)
    return sharing_weights(graph, graph.kernels, candidates, _needs_permission)


def _needs_permission(kernel: OperatorKernel) -> bool:
    return bool(permissions_of(kernel.function))


def _candidates(kernels: Kernels, winner: Delivery.Winner) -> Iterator[Delivery.Winner]:
    """Measured configurations with other algorithms, then first guesses."""
    yield from winner.others
    for config in (*winner.guesses, *kernels.first_guesses(winner.task)):
        yield Delivery.Winner(task=winner.task, config=config)
