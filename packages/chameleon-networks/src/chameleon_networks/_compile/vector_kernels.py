"""Chooses kernels that need no permission, for systems that refuse it and CPUs without tiles.

A network whose kernels use AMX's tiles is delivered with a second library. It has kernels that use
vectors instead, and makes their packed weights of those of the tile kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    FLOAT32,
    Arrays,
    ChameleonError,
    Delivery,
    InvalidConfigurationError,
)
from chameleon_tvm.api import TVMBuilder, permissions_of, tvm_target, used_features
from numpy.typing import NDArray

from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.sequence.repacking import (
    Order,
    Repacking,
    digest_of,
    order_of,
    repacking_of,
)
from chameleon_networks._graph.fusion_groups import FusionGroup

_UNUSED_IN_FLOAT32 = frozenset({"avx512fp16", "avxvnni"})
"""Features of CPUs with AMX that kernels of float32 do not need, and that AMD's CPUs lack."""

_FEATURES = {"amx": "amx-"}
"""The prefix of the features that a permission is for, by permission."""


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
        if choice.orders is None or other is None:
            continue
        (order, source_order), place = choice.orders, choice.place
        constant, source = other.arguments[place], arguments[place]
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
        orders: The orders of its packed weights and of those of the network's kernel. None if the
            former cannot be made of the latter.
    """

    winner: Delivery.Winner
    place: int = 0
    orders: tuple[Order, Order] | None = None


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
            pack = partial(_pack, builder, logical, place)
            orders = [
                order_of(partial(pack, config), weights.shape, weights.dtype)
                for config in (candidate.config, winner.config)
            ]
            if None not in orders:
                return _Choice(winner=candidate, place=place, orders=(orders[0], orders[1]))
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
    return np.ascontiguousarray(builder.program(config).inputs[place])


def target_without(target: str, permissions: frozenset[str], fusions: Sequence[FusionGroup]) -> str:
    """A target without the features that permissions are for, and without unused ones."""
    prefixes = tuple(_FEATURES[permission] for permission in permissions)
    features = used_features(tvm_target(target))
    left_out = {feature for feature in features if feature.startswith(prefixes)}
    if all(getattr(fusion.spec, "dtype", FLOAT32) == FLOAT32 for fusion in fusions):
        left_out |= features & _UNUSED_IN_FLOAT32
    options = json.loads(target)
    without = [f"-{feature}" for feature in sorted(left_out)]
    return json.dumps({**options, "mattr": [*options.get("mattr", ()), *without]}, sort_keys=True)
