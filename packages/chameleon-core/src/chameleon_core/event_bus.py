"""Tells every listener what happened; one that fails is switched off, never fatal."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy
import structlog

from chameleon_core.events.records import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    CheckFinished,
    CheckStarted,
    ComparisonStarted,
    Event,
    Measured,
    RunFinished,
    RunStarted,
    TaskFinished,
)
from chameleon_core.plugins.hookspecs import PROJECT, EventHooks

log = structlog.get_logger()

_HOOKS: dict[type, str] = {
    CheckStarted: "chameleon_check_started",
    CheckFinished: "chameleon_check_finished",
    RunStarted: "chameleon_run_started",
    BatchProposed: "chameleon_batch_proposed",
    Measured: "chameleon_measured",
    BatchMeasured: "chameleon_batch_measured",
    BestImproved: "chameleon_best_improved",
    TaskFinished: "chameleon_task_finished",
    ComparisonStarted: "chameleon_comparison_started",
    RunFinished: "chameleon_run_finished",
}


class EventBus:
    """Broadcasts events to the implementations of ``EventHooks``.

    Args:
        listeners: objects or modules with ``@hookimpl`` functions named as in ``EventHooks``;
            one that is named twice is told once.
    """

    def __init__(self, listeners: Iterable[object] = ()) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(EventHooks)
        for listener in listeners:
            if not self._manager.is_registered(listener):
                self._register(listener)

    def _register(self, listener: object) -> None:
        try:
            self._manager.register(listener)
        except (Exception, SystemExit):  # anyone's code; watching a run must not end it
            log.exception("a listener cannot be registered and is left out", listener=listener)

    def publish(self, event: Event) -> None:
        """Tell every listener, in order of registration."""
        caller = getattr(self._manager.hook, _HOOKS[type(event)])
        # Each implementation is called on its own: pluggy's own call ends at the first error.
        for implementation in caller.get_hookimpls():
            try:
                implementation.function(*(event for _ in implementation.argnames))
            except (Exception, SystemExit):  # anyone's code; watching a run must not end it
                log.exception(
                    "a listener failed and is switched off", listener=implementation.plugin_name
                )
                self._manager.unregister(implementation.plugin)
