"""Schedules for what is not tuned: TVM's default is loops as they are written, on one thread."""

from __future__ import annotations

from typing import Any

import structlog

from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.loops.schedule import default_plan, scheduled
from chameleon_tvm.targets import target_info

log = structlog.get_logger()

OURS = "chameleon.task"
"""Attribute of functions that are scheduled already: the task they were tuned as."""


def with_default_schedules(module: Any, target: str) -> Any:
    """The module with every unscheduled function of loops scheduled for a CPU.

    Args:
        module: an ``IRModule`` after ``FuseTIR``.
        target: the resolved target.
    """
    lanes = target_info(target).lanes("float32")
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc) or OURS in (function.attrs or {}):
            continue
        try:
            made = scheduled(function, default_plan(function), lanes)
        except Exception as error:  # noqa: BLE001 - whatever a schedule refuses is left as it is
            log.debug("default_schedule_refused", problem=str(error).splitlines()[-1])
            continue
        module.update_func(variable, made)
    return module
