"""Schedulers: which task of a run gets the next batch."""

from chameleon_core.schedulers.contract import Scheduler, SchedulerContext, TaskState

__all__ = ["Scheduler", "SchedulerContext", "TaskState"]
