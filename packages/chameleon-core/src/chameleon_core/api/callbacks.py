"""Functions that are told every event of a run, and may ask it to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from chameleon_core.api.checks import functions
from chameleon_core.events import Event
from chameleon_core.plugins.event_hooks import EventHooks
from chameleon_core.plugins.hookspecs import PROJECT, hookimpl


class _Stop:
    """The value of ``STOP``; nothing else is one."""

    def __repr__(self) -> str:
        return "STOP"


STOP: Final = _Stop()
"""What a callback returns to have the run end after what is in flight."""

Callback = Callable[[Event], object]
"""Takes an event of ``chameleon_core.events``; returns ``STOP``, or anything else to go on."""


def listeners(callbacks: Iterable[Callback], stop: Callable[[], object]) -> list[object]:
    """Listeners of an event bus, one for each function.

    Args:
        callbacks: functions of one event; one that raises is logged and called no more.
        stop: called where one of them returns ``STOP``.

    Raises:
        ConfigError: they are no list of functions.
    """
    told = functions(callbacks, "callbacks")
    return [_listener(callback, stop, number) for number, callback in enumerate(told)]


def _listener(callback: Callback, stop: Callable[[], object], number: int) -> object:
    def hook_of(name: str) -> Callable[[object, Event], None]:
        def hook(_self: object, event: Event) -> None:
            if callback(event) is STOP:
                stop()

        hook.__name__ = name
        return hookimpl(hook)

    hooks = {name: hook_of(name) for name in vars(EventHooks) if name.startswith(f"{PROJECT}_")}
    # What the log calls it where it fails; the number tells two of one name apart.
    name = getattr(callback, "__qualname__", type(callback).__qualname__)
    return type("Callback", (), {**hooks, "__name__": f"callbacks[{number}], {name}"})()
