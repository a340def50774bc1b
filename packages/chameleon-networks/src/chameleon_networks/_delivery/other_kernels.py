"""Chooses kernels for other CPUs than the one that a network was tuned for.

Such kernels make their packed weights of those of the network's own kernels, if they can, so that
the weight file holds the weights once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import ChameleonError, Delivery, InvalidConfigurationError
from chameleon_tvm.api import TVMBuilder, permissions_of
from numpy.typing import NDArray

from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels, OperatorKernel
from chameleon_networks._compile.sequence.repacking import (
    Order,
    Pack,
    Repacking,
    digest_of,
    order_of,
    repacking_of,
)
from chameleon_networks._delivery.delivery_steps import GraphWithKernels
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.tvm_warnings import warnings_once

_APART = 1e-4
"""Distance of the transforms of a filter at two points, relative to the largest one."""

_AXES = 2
"""Number of the axes of channels, which come before those of a filter."""


@attrs.frozen(kw_only=True, eq=False)
class OtherKernels:
    """Kernels of a network for another CPU, or for a system that refuses a permission.

    Attributes:
        kernels: The kernels.
        repackings: How their packed weights are made of those of the network's own kernels, by the
            digests of packed weights.
        replaced: Number of tasks whose kernels are not those of the network.
    """

    kernels: Kernels
    repackings: Mapping[bytes, Repacking]
    replaced: int


def sharing_weights(
    graph: GraphWithKernels,
    others: Kernels,
    candidates: Callable[[Delivery.Winner], Iterable[Delivery.Winner]],
    is_replaced: Callable[[OperatorKernel], bool] = lambda _: True,
) -> OtherKernels:
    """Choose kernels that need no permission and make their weights of the network's.

    Each task gets the first candidate whose weights can be made of the network's, or else the
    first one that can be built. The folder then also holds the weights of that kernel.

    Args:
        graph: The network.
        others: A winner for each task that gets another kernel.
        candidates: The configurations that may replace a winner, the best first.
        is_replaced: Whether a kernel of the network gets a substitute.

    Raises:
        ChameleonError: No candidate of a task can be built.
    """
    own = graph.kernels
    choices: dict[str, _Choice] = {}
    packed = []
    for fusion in graph.fusions:
        kernel, key = own.of(fusion), others.task_of(fusion).key
        if kernel is None or key not in others.winners or not is_replaced(kernel):
            continue
        if key not in choices:
            choices[key] = _choose(candidates(others.winners[key]), others, own, fusion)
        packed.append((choices[key], kernel.arguments, fusion))
    winners = {key: choice.winner for key, choice in choices.items()}
    chosen = attrs.evolve(others, winners={**others.winners, **winners})
    repackings: dict[bytes, Repacking] = {}
    for choice, arguments, fusion in packed:
        other = chosen.of(fusion)
        order, source_order = choice.orders
        constant = None if other is None else other.arguments[choice.place]
        source = arguments[choice.place]
        if constant is None or source is None:
            continue
        found = repacking_of(source, source_order, constant, order)
        if found is not None:
            repackings[digest_of(constant)] = found
    return OtherKernels(kernels=chosen, repackings=repackings, replaced=len(choices))


@attrs.frozen(kw_only=True, eq=False)
class _Choice:
    """Another kernel of a task.

    Attributes:
        winner: Its configuration.
        place: The index of the weights among the operator's inputs.
        orders: The orders of its packed weights and of those of the network's kernel, if the former
            can be made of the latter.
    """

    winner: Delivery.Winner
    place: int = 0
    orders: tuple[Order | None, Order | None] = (None, None)


def _choose(
    candidates: Iterable[Delivery.Winner], others: Kernels, own: Kernels, fusion: FusionGroup
) -> _Choice:
    """The best candidate for the task of a fusion group."""
    task, winner = others.task_of(fusion), own.winners[own.task_of(fusion).key]
    builder, source_builder = others.builder(task), own.builder(winner.task)
    assert builder is not None  # noqa: S101 - others have a winner for the task
    assert source_builder is not None  # noqa: S101 - it made the kernel
    packer = source_order = None
    if builder.operator.constants:
        packer, source = _Packer(builder), _Packer(source_builder)
        source_order = source.order(winner.config)
        stored = source.packed(winner.config, packer.weights)
    first: _Choice | None = None
    tried: set[Sequence[int]] = set()
    for candidate in candidates:
        # The first knob is the algorithm, and the weights of some algorithms are other numbers.
        algorithm = candidate.config[:1]
        if algorithm in tried:
            continue
        try:
            function = builder.program(candidate.config).function
        except InvalidConfigurationError:
            continue
        if permissions_of(function):
            continue
        first = first or _Choice(winner=candidate)
        if packer is None or source_order is None:
            break
        tried.add(algorithm)
        constant = packer.packed(candidate.config, packer.weights)
        order = packer.order(candidate.config)
        if _has_columns_of(order, source_order) and repacking_of(
            stored, source_order, constant, order
        ):
            orders = order, source_order
            return _Choice(winner=candidate, place=packer.place, orders=orders)
    if first is None:
        raise ChameleonError(f"task {task.name} has no other kernel")
    return first


def _has_columns_of(order: Order | None, other: Order) -> bool:
    return order is not None and order.column_places.shape == other.column_places.shape


class _Packer:
    """Packs weights as the kernels of an operator read them."""

    def __init__(self, builder: TVMBuilder) -> None:
        self._builder, self._logical = builder, list(builder.inputs)
        self.place = min(builder.operator.constants)
        self.weights = np.asarray(self._logical[self.place])

    def packed(self, config: Sequence[int], weights: NDArray[Any]) -> NDArray[Any]:
        """The weights in the order of a configuration."""
        inputs = list(self._logical)
        inputs[self.place] = weights
        self._builder.use(inputs)
        try:
            return np.ascontiguousarray(self._builder.packed(config)[0])
        finally:
            self._builder.use(self._logical)

    def order(self, config: Sequence[int]) -> Order | None:
        """The order of a configuration; None if it is none of weights or of transformed ones."""
        pack, shape = partial(self.packed, config), self.weights.shape
        order = order_of(pack, shape, self.weights.dtype)
        if order is None and self.weights.dtype == np.float32:
            return _transformed_order(pack, shape)
        return order


def _transformed_order(pack: Pack, shape: Sequence[int]) -> Order | None:
    """Find the order in which a function packs transformed filters, as Winograd's; None if none.

    The columns of the order are pairs of an input channel and a point of the transform.

    Args:
        pack: The function. Its results have zeros where they hold no weight.
        shape: The shape of logical weights: output channels, input channels, spatial axes.
    """
    channels, filters = shape[:_AXES], shape[_AXES:]
    # A random filter has another number at each point.
    kernel = np.random.default_rng(0).uniform(1.0, 2.0, filters)

    def packed(numbers: NDArray[np.float64]) -> NDArray[Any]:
        return pack(np.multiply.outer(numbers, kernel).astype(np.float32)).reshape(-1)

    unit = packed(np.ones(channels))
    places = np.flatnonzero(unit)
    if not filters or len(places) == 0:
        return None
    known = np.unique(unit[places])
    starts = np.diff(known, prepend=-np.inf) > _APART * np.abs(known).max()
    numbers = np.cumsum(starts) - 1
    count = int(numbers[-1]) + 1
    points = numbers[np.searchsorted(known, unit[places])]
    found = []
    for axis in range(_AXES):
        own = np.zeros(channels)
        own[(slice(None), 0) if axis == 0 else (0, slice(None))] = np.arange(channels[axis]) + 1
        found.append(np.rint(packed(own)[places] / unit[places]).astype(np.int64) - 1)
    rows, columns = found
    is_row, is_column = (rows >= 0) & (points == 0), columns >= 0
    pairs = columns[is_column] * count + points[is_column]
    by_pair = np.argsort(pairs)
    if not np.array_equal(pairs[by_pair], np.arange(channels[1] * count)):
        return None
    if not np.array_equal(np.unique(rows[is_row]), np.arange(channels[0])):
        return None
    column_places = places[is_column][by_pair]
    return Order(
        rows=rows[is_row],
        row_places=places[is_row],
        column_places=column_places - column_places[0],
        parts=(0,),
    )


def write_other_kernels(
    folder: Path, graph: GraphWithKernels, chosen: OtherKernels, target: str, threads: int
) -> None:
    """Write a folder, inside the network's one, with kernels for another target.

    Raises:
        ChameleonError: The network has other code that needs a permission, or TVM's virtual machine
            runs it.
    """
    with warnings_once():
        built = compile_network(
            graph.module,
            graph.fusions,
            chosen.kernels,
            target,
            dimension=graph.dimension,
            wait=False,
        )
        if built.permissions:
            raise ChameleonError("other code than the kernels of its operators needs it")
        if built.virtual_machine:
            raise ChameleonError(f"TVM's virtual machine runs it, because {built.virtual_machine}")
        executable = attrs.evolve(built.executable, repackings=chosen.repackings)
        manifest = manifest_of(graph.module, graph.fusions, chosen.kernels, target, threads)
        write_artifact(folder, executable, {**manifest, **built.facts}, is_inner=True)
