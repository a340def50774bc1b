"""Which chains of a network exchange tensors, and what converting those takes."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from chameleon_tvm.types import COMPUTE

from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import relax
from chameleon_networks.precision.choice import Tensor
from chameleon_networks.precision.fronts import Floats
from chameleon_networks.quantize.reads import Network

_FLOAT_BYTES = 4
_COPIED_BYTES = 8 << 20
_COPIES = 5


@cache
def bytes_per_second() -> float:
    """How fast one thread of this machine reads and writes memory that is in no cache of its own.

    Converting a tensor does little else, so that its bytes over this rate estimate it. Estimates
    decide between assignments that are close to each other. The delivery is timed as a whole.
    """
    source = np.zeros(_COPIED_BYTES // _FLOAT_BYTES, np.float32)
    target = np.empty_like(source)
    seconds = []
    for _ in range(_COPIES):
        started = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - started)
    return 2 * _COPIED_BYTES / min(seconds)


def order_of(network: Network) -> list[int]:
    """Places of the chains in an order in which each comes after all that it reads.

    A chain that adds a residual may begin before what computes the residual.
    """
    ends = {
        network.chain_at[binding.var]: position
        for position, binding in enumerate(network.bindings)
        if binding.var in network.chain_at
    }
    return sorted(range(len(network.chains)), key=ends.__getitem__)


def tensors_of(network: Network, kinds: Sequence[str], rate: float) -> list[Tensor]:
    """The tensors that chains read, with places in the order of ``order_of``.

    Args:
        network: in float32.
        kinds: the types, float32 first.
        rate: bytes that are read or written in a second.
    """
    sources: dict[Any, set[Any]] = defaultdict(set)
    for source, carried in network.carried():
        sources[carried].add(source)
    place_of = {index: position for position, index in enumerate(order_of(network))}
    producers = {chain.last: place_of[index] for index, chain in enumerate(network.chains)}
    consumers: dict[Any, set[int]] = defaultdict(set)
    for index in range(len(network.chains)):
        added = network.residual(index)
        reads = [*(operand for operand, _ in network.operands(index)), *(added or ())[:1]]
        for read in reads:
            for root in _roots(read, sources):
                consumers[root].add(place_of[index])
    # An output, or an operator that is no chain and does not just move numbers, reads float32.
    exact = {
        root
        for variable in network.names
        if any(
            user is None
            or (
                user.var not in network.chain_at
                and user.var not in sources
                and network.multiplying(user.var, variable) is None
            )
            for user in network.users.get(variable, ())
        )
        for root in _roots(variable, sources)
    }
    return [
        Tensor(
            producer=producers.get(root),
            consumers=tuple(sorted(readers)),
            conversions=_conversions(root, kinds, rate),
            in_float32=root in exact,
        )
        for root, readers in consumers.items()
    ]


def _roots(variable: Any, sources: dict[Any, set[Any]]) -> set[Any]:
    """The variables that the numbers of a variable were computed as."""
    if variable not in sources:
        return {variable}
    return {root for source in sources[variable] for root in _roots(source, sources)}


def _conversions(variable: Any, kinds: Sequence[str], rate: float) -> Floats:
    """Seconds from one type to another, for reading and writing."""
    elements = 0 if isinstance(variable.ty, relax.TupleType) else math.prod(shape_of(variable))
    forms = [COMPUTE[kind].data for kind in kinds]
    sizes = [form.bits // 8 for form in forms]
    both = np.add.outer(sizes, sizes) * (elements / rate)
    differ = np.array([[form != other for other in forms] for form in forms])
    return np.asarray(both * differ, np.float64)
