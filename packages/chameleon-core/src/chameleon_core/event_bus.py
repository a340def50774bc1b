"""Tells every listener what happened, the event log among them; one that fails is switched off."""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path

import attrs
import pluggy
import structlog

from chameleon_core.events import Event
from chameleon_core.plugins.event_hooks import EventHooks
from chameleon_core.plugins.hookspecs import PROJECT, hookimpl
from chameleon_core.plugins.implementations import order_of, refused_event_hook

log = structlog.get_logger()


def hook_of(event: type) -> str:
    """The hook of a class of events: ``chameleon_run_started`` of ``RunStarted``."""
    return "_".join([PROJECT, *re.findall("[A-Z][a-z]+", event.__name__)]).lower()


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
            return
        for caller in self._manager.get_hookcallers(listener) or ():
            for implementation in caller.get_hookimpls():
                refused = refused_event_hook(implementation)
                if refused and implementation.plugin is listener:
                    said = f"a listener implements {caller.name} {refused}"
                    log.error(said, listener=listener)

    def publish(self, event: Event) -> None:
        """Tell every listener, in order of registration but for ``tryfirst`` and ``trylast``."""
        caller = getattr(self._manager.hook, hook_of(type(event)))
        # Each implementation is called on its own: pluggy's own call ends at the first error.
        for implementation in sorted(caller.get_hookimpls(), key=order_of):
            if refused_event_hook(implementation):
                continue
            try:
                implementation.function(*(event for _ in implementation.argnames))
            except (Exception, SystemExit) as error:  # anyone's; watching a run must not end it
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    log.warning("the disk is full, so that a file of the run is missing or cut off")
                else:
                    listener = implementation.plugin_name
                    log.exception("a listener failed and is switched off", listener=listener)
                self._manager.unregister(implementation.plugin)


class EventLog:
    """Appends every event to a file but single measurements and steps of comparisons.

    The store has the former; the latter are for those who wait.

    Args:
        path: the file; an earlier process's lines stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @hookimpl
    def chameleon_check_started(self, event: Event) -> None:
        """See ``EventHooks``: whatever happened, it is a line."""
        name = type(event).__name__
        line = json.dumps({"at": time.time(), "event": name, **attrs.asdict(event)}, default=str)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    chameleon_check_finished = chameleon_check_started
    chameleon_run_started = chameleon_check_started
    chameleon_batch_proposed = chameleon_check_started
    chameleon_batch_measured = chameleon_check_started
    chameleon_best_improved = chameleon_check_started
    chameleon_task_finished = chameleon_check_started
    chameleon_comparison_started = chameleon_check_started
    chameleon_run_finished = chameleon_check_started
