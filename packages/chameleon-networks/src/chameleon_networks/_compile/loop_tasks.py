"""Makes tasks of functions without a matrix product that take much of an inference.

Examples are normalization and pooling; their configurations are loop schedules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import ConfigError, Task
from chameleon_tvm.api import (
    KIND,
    LoopPlan,
    function_arguments,
    function_flop,
    loaded_function,
    operator_of,
    structural_equal,
    structural_hash,
    tirx,
    tvm,
)

from chameleon_networks._compile.default_schedules import TASK_ATTRIBUTE

log = structlog.get_logger()

TUNED_SHARE = 0.02
"""The least share of an inference's time that makes a function worth measurements. A kernel that is
twice as fast then saves 1 % of the time."""


LARGE_SHARE = 0.1
"""The share of an inference's time above which a kernel without a schedule is reported."""


@attrs.frozen(kw_only=True, eq=False)
class TunedLoops:
    """The tuned schedules of a network's functions that contain no matrix product.

    Attributes:
        plans: For each function, the name of its task and its schedule, by the function's
            structural hash in TVM.
    """

    plans: Mapping[int, tuple[str, LoopPlan]]

    @classmethod
    def of(cls, plans: Iterable[tuple[Task, LoopPlan]]) -> TunedLoops:
        """Collect the schedules of tasks of kind ``loops``."""
        return cls(
            plans={
                _structural_key(operator_of(task).prim_func()): (task.name, plan)
                for task, plan in plans
            }
        )

    def task_of(self, function: Any) -> str | None:
        """The name of the task under which a network's function was tuned, or None."""
        plan = self.plans.get(_structural_key(function)) if self.plans else None
        return None if plan is None else plan[0]

    def plan(self, function: Any) -> LoopPlan | None:
        """The fastest schedule that a run found for a function; None if it was not tuned."""
        plan = self.plans.get(_structural_key(function)) if self.plans else None
        return None if plan is None else plan[1]


@attrs.frozen(kw_only=True)
class CostlyFunction:
    """A function of a network that is worth tuning although it is no matrix product.

    Attributes:
        name: The name of the function's kernel.
        function: The function in TVM's JSON.
        calls: Number of calls in one inference.
        seconds: Seconds that all calls of one inference take together.
    """

    name: str
    function: str
    calls: int
    seconds: float


def costly_functions(
    functions: Mapping[str, Any], kernels: Sequence[NetworkResult.Kernel], seconds: float
) -> tuple[CostlyFunction, ...]:
    """Find the functions of a network that are worth tuning, the slowest first."""
    alike: dict[int, list[NetworkResult.Kernel]] = defaultdict(list)
    for row in kernels:
        function = functions.get(row.name)
        if function is not None and TASK_ATTRIBUTE not in (function.attrs or {}):
            alike[_structural_key(function)].append(row)
    costly = [
        CostlyFunction(
            name=rows[0].name,
            function=tvm.ir.save_json(_without_attributes(functions[rows[0].name])),
            calls=sum(row.calls for row in rows),
            seconds=took,
        )
        for rows in alike.values()
        if (took := sum(row.seconds for row in rows)) >= TUNED_SHARE * seconds
        and _has_float_inputs(functions[rows[0].name])
    ]
    return tuple(sorted(costly, key=lambda function: -function.seconds))


def large_shares(
    kernels: Sequence[NetworkResult.Kernel], names: Collection[str], seconds: float
) -> dict[str, float]:
    """The kernels above ``LARGE_SHARE`` of an inference's time, with their shares by name."""
    total = max(seconds, sum(kernel.seconds for kernel in kernels if kernel.name in names))
    shares: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        if kernel.name in names:
            shares[kernel.name] += kernel.seconds / total
    return {name: share for name, share in shares.items() if share > LARGE_SHARE}


def loop_tasks(
    costly: Iterable[CostlyFunction], functions: Iterable[tuple[Any, int]], target: str
) -> list[Task]:
    """Make tasks of costly functions, so that a run tunes them, if the network still has them."""
    occurrences = {_structural_key(function): (function, calls) for function, calls in functions}
    tasks = []
    for entry in costly:
        name = f"{KIND}_{entry.name}"
        function = loaded_function(entry.function)
        own, calls = occurrences.get(_structural_key(function), (None, 0))
        # An entry may come from a file of unknown origin, so only the network's own functions are
        # built.
        if not calls or not structural_equal(_without_attributes(own), function):
            continue
        try:
            arguments = function_arguments(function, name)
            flop = function_flop(function, name)
        except ConfigError as error:
            log.info("function_not_tuned", function=entry.name, problem=str(error))
            continue
        tasks.append(
            Task(
                name=name,
                operator=KIND,
                arguments=arguments,
                target=target,
                flop=flop,
                weight=calls,
            )
        )
    return tasks


def _without_attributes(function: Any) -> Any:
    """A function without its attributes, such as its name and annotations of passes."""
    return tirx.PrimFunc(function.params, function.body, function.ret_type)


def _structural_key(function: Any) -> int:
    return int(structural_hash(_without_attributes(function)))


def _has_float_inputs(function: Any) -> bool:
    """Whether random numbers can be inputs; random indices might lie outside of an array."""
    return all(str(parameter.dtype) == "float32" for parameter in function.params)
