"""Chooses kernels that need no permission, for systems that refuse it and CPUs without tiles.

A network whose kernels use AMX's tiles is delivered with a second library. It has kernels that use
vectors instead, and makes their packed weights of those of the tile kernels.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import (
    FLOAT32,
    Arrays,
    ChameleonError,
    Delivery,
    InvalidConfigurationError,
    fall_back,
)
from chameleon_tvm.api import TVMBuilder, first_line, permissions_of, target_without
from numpy.typing import NDArray

from chameleon_networks._artifact.writer import (
    manifest_of,
    read_manifest,
    write_artifact,
    write_manifest,
)
from chameleon_networks._c_runtime.linking import OBJECTS
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.sequence.repacking import (
    Order,
    Repacking,
    digest_of,
    order_of,
    repacking_of,
)
from chameleon_networks._delivery.delivery_steps import DeliverySteps, GraphWithKernels
from chameleon_networks._evaluation.processes import delivered_process
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.tvm_warnings import warnings_once

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
    count = write_vector_kernels(inner, graph, steps.target, steps.threads, permissions)
    with delivered_process(VECTORS, inner, threads=steps.threads) as process:
        problem = steps.problem_of(process)
    if problem is not None:
        raise ChameleonError(f"their outputs are wrong: {problem}")
    return count


def write_vector_kernels(
    folder: Path, graph: GraphWithKernels, target: str, threads: int, permissions: frozenset[str]
) -> int:
    """Write a network's folder with kernels that need no permission; return how many were replaced.

    Raises:
        ChameleonError: There are no such kernels.
    """
    module, fusions = graph.module, graph.fusions
    chosen = vector_kernels(graph.kernels, fusions)
    float32 = all(getattr(fusion.spec, "dtype", FLOAT32) == FLOAT32 for fusion in fusions)
    without = target_without(target, permissions, float32=float32)
    with warnings_once():
        built = compile_network(
            module, fusions, chosen.kernels, without, dimension=graph.dimension, wait=False
        )
        if built.permissions:
            raise ChameleonError("other code than the kernels of its operators needs it")
        executable = attrs.evolve(built.executable, repackings=chosen.repackings)
        manifest = manifest_of(module, fusions, chosen.kernels, without, threads)
        write_artifact(folder, executable, {**manifest, **built.facts}, is_inner=True)
    (folder / OBJECTS).unlink()  # bundles for C have the other kernels
    return chosen.replaced


@attrs.frozen(kw_only=True, eq=False)
class VectorKernels:
    """Kernels of a network that need no permission.

    Attributes:
        kernels: The kernels.
        repackings: How their packed weights are made of those of the network's other kernels, by
            the digests of packed weights.
        replaced: Number of tasks whose kernels are not those of the network.
    """

    kernels: Kernels
    repackings: Mapping[bytes, Repacking]
    replaced: int


def vector_kernels(kernels: Kernels, fusions: Sequence[FusionGroup]) -> VectorKernels:
    """Replace the kernels that need a permission.

    Each gets the fastest measured configuration whose weights can be made of the network's, or else
    such a first guess. If there is none, the folder also holds the weights of the other kernel.

    Raises:
        ChameleonError: A task has no kernel without a permission.
    """
    choices: dict[str, _Choice] = {}
    packed = []
    for fusion in fusions:
        kernel = kernels.of(fusion)
        if kernel is None or not permissions_of(kernel.function):
            continue
        task = kernels.task_of(fusion)
        builder = kernels.builder(task)
        assert builder is not None  # noqa: S101 - it made the kernel
        if task.key not in choices:
            choices[task.key] = _choose(kernels.winners[task.key], kernels, builder)
        packed.append((choices[task.key], kernel.arguments, fusion))
    winners = {key: choice.winner for key, choice in choices.items()}
    others = attrs.evolve(kernels, winners={**kernels.winners, **winners})
    repackings: dict[bytes, Repacking] = {}
    for choice, arguments, fusion in packed:
        other = others.of(fusion)
        order, source_order = choice.orders
        constant = None if other is None else other.arguments[choice.place]
        source = arguments[choice.place]
        if constant is None or source is None:
            continue
        found = repacking_of(source, source_order, constant, order)
        if found is not None:
            repackings[digest_of(constant)] = found
    return VectorKernels(kernels=others, repackings=repackings, replaced=len(choices))


@attrs.frozen(kw_only=True, eq=False)
class _Choice:
    """The kernel of a task that needs no permission.

    Attributes:
        winner: Its configuration.
        place: The index of the weights among the operator's inputs.
        orders: The orders of its packed weights and of those of the network's kernel, if the former
            can be made of the latter.
    """

    winner: Delivery.Winner
    place: int = 0
    orders: tuple[Order | None, Order | None] = (None, None)


def _choose(winner: Delivery.Winner, kernels: Kernels, builder: TVMBuilder) -> _Choice:
    """The best configuration of a task that needs no permission."""
    constants = sorted(builder.operator.constants)
    logical = list(builder.inputs)
    stored: _Choice | None = None
    try:
        for candidate in _candidates(winner, kernels):
            try:
                function = builder.program(candidate.config).function
            except InvalidConfigurationError:
                continue
            if permissions_of(function):
                continue
            if not constants:
                return _Choice(winner=candidate)
            place = constants[0]
            weights = np.asarray(logical[place])
            facts = weights.shape, weights.dtype
            pack, own = (
                partial(_pack, builder, logical, place, config)
                for config in (candidate.config, winner.config)
            )
            orders = order_of(pack, *facts), order_of(own, *facts)
            if repacking_of(own(weights), orders[1], pack(weights), orders[0]) is not None:
                return _Choice(winner=candidate, place=place, orders=orders)
            stored = stored or _Choice(winner=candidate)
    finally:
        builder.use(logical)
    if stored is None:
        raise ChameleonError(f"no kernel of task {winner.task.name} runs without it")
    return stored


def _candidates(winner: Delivery.Winner, kernels: Kernels) -> Iterator[Delivery.Winner]:
    """Measured configurations with other algorithms, then first guesses."""
    yield from winner.others
    for config in (*winner.guesses, *kernels.first_guesses(winner.task)):
        yield Delivery.Winner(task=winner.task, config=config)


def _pack(
    builder: TVMBuilder,
    logical: Arrays,
    place: int,
    config: Sequence[int],
    weights: NDArray[Any],
) -> NDArray[Any]:
    """Pack weights for a configuration."""
    inputs = list(logical)
    inputs[place] = weights
    builder.use(inputs)
    return np.ascontiguousarray(builder.packed(config)[0])
