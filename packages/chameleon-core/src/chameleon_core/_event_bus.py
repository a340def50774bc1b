"""Passes each event of a run to all listeners, such as the event log.

A listener that raises an exception gets no further events.
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import attrs
import pluggy
import structlog

from chameleon_core._events import Event
from chameleon_core._plugins.event_hooks import EventHooks
from chameleon_core._plugins.hookspecs import PROJECT, hookimpl, order_of, refused_event_hook

log = structlog.get_logger()


def hook_of(event: type) -> str:
    """The name of the hook for a class of events: ``chameleon_run_started`` for ``RunStarted``."""
    return "_".join([PROJECT, *re.findall("[A-Z][a-z]+", event.__name__)]).lower()


class EventBus:
    """Broadcasts events to the implementations of ``EventHooks``.

    Args:
        listeners: objects or modules with ``@hookimpl`` functions named as in ``EventHooks``. A
            listener that occurs twice gets each event once.
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
            log.exception("listener_left_out", listener=listener)
            return
        for caller in self._manager.get_hookcallers(listener) or ():
            for implementation in caller.get_hookimpls():
                refused = refused_event_hook(implementation)
                if refused and implementation.plugin is listener:
                    reason = f"it implements {caller.name} {refused}"
                    log.error("event_hook_left_out", listener=listener, reason=reason)

    def publish(self, event: Event) -> None:
        """Pass an event to every listener.

        Listeners are called in order of registration, unless they have ``tryfirst`` or ``trylast``.

        Args:
            event: the event.
        """
        caller = getattr(self._manager.hook, hook_of(type(event)))
        # Each implementation is called separately, because pluggy's own call ends at the first
        # error.
        for implementation in sorted(caller.get_hookimpls(), key=order_of):
            if refused_event_hook(implementation):
                continue
            try:
                implementation.function(*(event for _ in implementation.argnames))
            except (Exception, SystemExit) as error:  # anyone's; watching a run must not end it
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    log.warning("file_of_run_incomplete", reason="the disk is full")
                else:
                    listener = implementation.plugin_name
                    log.exception("listener_switched_off", listener=listener)
                self._manager.unregister(implementation.plugin)


def listener(tell: Callable[[Event], object], name: str, *, but: Collection[str] = ()) -> object:
    """Make a listener for ``EventBus`` that calls one function with every event.

    Args:
        tell: the function to call with each event.
        name: the listener's name in the log if it fails.
        but: names of hooks, such as ``chameleon_measured``, whose events are not passed to
            ``tell``.
    """

    def hook_named(hook: str) -> Callable[[object, Event], None]:
        def call(_self: object, event: Event) -> None:
            tell(event)

        call.__name__ = hook
        return hookimpl(call)

    hooks = [hook for hook in vars(EventHooks) if hook.startswith(f"{PROJECT}_")]
    members = {hook: hook_named(hook) for hook in hooks if hook not in but}
    return type("Listener", (), {**members, "__name__": name})()


def event_log(path: Path) -> object:
    """Make a listener that appends the events of a run to a file, one JSON object per line.

    Two kinds of events are not written: measurements, which are in the store, and steps of
    comparisons, which only the display needs.

    Args:
        path: the file. Lines that earlier processes wrote stay.
    """

    def append(event: Event) -> None:
        about = {"at": time.time(), "event": type(event).__name__, **attrs.asdict(event)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(about, default=str) + "\n")

    return listener(
        append, "EventLog", but=("chameleon_measured", "chameleon_comparison_progressed")
    )
