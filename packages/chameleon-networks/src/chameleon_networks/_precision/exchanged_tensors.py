"""Finds the tensors that a network's operators exchange, and estimates the time to convert them."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from chameleon_tvm.api import COMPUTE

from chameleon_networks._graph.relax_utils import relax, shape_of
from chameleon_networks._precision.choice import Tensor
from chameleon_networks._precision.pareto_front import Floats
from chameleon_networks._quantize.data_flow import DataFlow

_FLOAT_BYTES = 4
_COPIED_BYTES = 8 << 20
_COPIES = 5


@cache
def bytes_per_second() -> float:
    """The rate at which one thread copies main memory, to estimate conversions."""
    source = np.zeros(_COPIED_BYTES // _FLOAT_BYTES, np.float32)
    target = np.empty_like(source)
    seconds = []
    for _ in range(_COPIES):
        started = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - started)
    return 2 * _COPIED_BYTES / min(seconds)


def execution_order(network: DataFlow) -> list[int]:
    """The indices of the fusion groups, each after those whose results it reads."""
    # By their last bindings: an added residual may be computed after the first.
    ends = {
        network.fusion_at[binding.var]: position
        for position, binding in enumerate(network.bindings)
        if binding.var in network.fusion_at
    }
    return sorted(range(len(network.fusions)), key=ends.__getitem__)


def exchanged_tensors(network: DataFlow, kinds: Sequence[str], rate: float) -> list[Tensor]:
    """The tensors that fusion groups, in ``execution_order``, exchange, with conversions."""
    sources: dict[Any, set[Any]] = defaultdict(set)
    for source, moved in network.moved_pairs():
        sources[moved].add(source)
    position_of = {index: position for position, index in enumerate(execution_order(network))}
    producers = {fusion.last: position_of[index] for index, fusion in enumerate(network.fusions)}
    consumers: dict[Any, set[int]] = defaultdict(set)
    for index in range(len(network.fusions)):
        added = network.residual(index)
        reads = [*(operand for operand, _ in network.operands(index)), *(added or ())[:1]]
        for read in reads:
            for root in _roots(read, sources):
                consumers[root].add(position_of[index])
    # Outputs, and operators other than fusion groups and data movement, read float32.
    read_in_float32 = {
        root
        for variable in network.names
        if any(
            user is None
            or (
                user.var not in network.fusion_at
                and user.var not in sources
                and network.multiplied_by(user.var, variable) is None
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
            in_float32=root in read_in_float32,
        )
        for root, readers in consumers.items()
    ]


def _roots(variable: Any, sources: dict[Any, set[Any]]) -> set[Any]:
    """The variables whose numbers data movement passes on to a variable."""
    if variable not in sources:
        return {variable}
    return {root for source in sources[variable] for root in _roots(source, sources)}


def _conversions(variable: Any, kinds: Sequence[str], rate: float) -> Floats:
    """Array of shape (dtypes, dtypes): seconds to convert a tensor from one dtype to another."""
    elements = 0 if isinstance(variable.ty, relax.TupleType) else math.prod(shape_of(variable))
    forms = [COMPUTE[kind].data for kind in kinds]
    sizes = [form.bits // 8 for form in forms]
    both = np.add.outer(sizes, sizes) * (elements / rate)
    differ = np.array([[form != other for other in forms] for form in forms])
    return np.asarray(both * differ, np.float64)
