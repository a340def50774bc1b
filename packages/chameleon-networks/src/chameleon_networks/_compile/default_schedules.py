"""Default schedules of functions that are not tuned, which TVM would run on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from chameleon_core.plugin_api import fall_back
from chameleon_tvm.api import (
    LANES,
    REFUSED,
    LoopPlan,
    default_plan,
    scheduled,
    target_info,
    telling_line,
    tirx,
)

from chameleon_networks._graph.relax_utils import LOOPS_ATTRIBUTE

log = structlog.get_logger()

TASK_ATTRIBUTE = "chameleon.task"
"""An attribute of functions that are already scheduled: the task that they were tuned as."""


def is_scheduled(function: Any) -> bool:
    """Whether Chameleon has scheduled a function, which TVM would else run on one thread."""
    return any(name in (function.attrs or {}) for name in (TASK_ATTRIBUTE, LOOPS_ATTRIBUTE, LANES))


def apply_default_schedules(
    module: Any, target: str, plan_of: Callable[[str, Any], LoopPlan | None] | None = None
) -> Any:
    """Schedule each function of a module that has no schedule yet, for a CPU."""
    lanes = target_info(target).lanes("float32")
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc) or is_scheduled(function):
            continue
        try:
            tuned = None if plan_of is None else plan_of(str(variable.name_hint), function)
            loops = scheduled(function, tuned or default_plan(function), lanes)
        except REFUSED as error:
            log.debug("default_schedule_refused", problem=telling_line(error))
            continue
        except Exception as error:  # noqa: BLE001 - the default schedule of TVM replaces it
            fall_back("default_schedule_failed", error, function=variable.name_hint)
            continue
        module.update_func(variable, loops)
    return module
