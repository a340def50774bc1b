"""A network whose tuned operators are calls of the functions that a database has records of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from chameleon_tvm.building.builder import TVMBuilder
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.sketch.rewriting import layout_free

from chameleon_networks.compile.defaults import OURS
from chameleon_networks.compile.kernels import OperatorKernel
from chameleon_networks.compile.placing import with_kernels
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.narrow_weights import specs_for


def with_workloads(
    module: Any, chains: Sequence[FusedOperator], builders: Mapping[str, TVMBuilder], target: str
) -> Any:
    """The network with calls of unscheduled functions in the places of its chains.

    MetaSchedule finds a record by the function it was made of, to the letter; the functions that
    Relax makes of the same operators are others.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        builders: those of the tuned tasks by ``Task.key``; other chains stay as they are.
        target: the resolved target.
    """

    def workload(chain: FusedOperator) -> OperatorKernel | None:
        keys = [spec.task("chain", target).key for spec in specs_for(chain, target)]
        builder = next((builders[key] for key in keys if key in builders), None)
        if builder is None:
            return None
        operator = builder.operator
        inputs = operator.inputs()
        for place, constant in zip(sorted(operator.constants), chain.constants, strict=True):
            inputs[place] = np.ascontiguousarray(constant)
        return OperatorKernel(
            task=builder.task.name,
            function=layout_free(operator.prim_func(), operator.constants),
            arguments=tuple(
                array if place in operator.constants else None
                for place, array in enumerate(operator.arrange(inputs))
            ),
            plain_loops=False,
        )

    return with_kernels(module, chains, workload, reshape=True)


def workloads_of(module: Any) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """The functions that ``with_workloads`` put into a network, each with its task's name."""
    for _, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and OURS in (function.attrs or {}):
            yield str(function.attrs[OURS]), function
