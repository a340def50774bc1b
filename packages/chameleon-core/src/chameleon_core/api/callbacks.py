"""Functions that are told every event of a run, and may ask it to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from chameleon_core.api.checks import functions
from chameleon_core.event_bus import listener
from chameleon_core.events import Event


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
    def tell(event: Event) -> None:
        if callback(event) is STOP:
            stop()

    # The number tells two of one name apart.
    name = getattr(callback, "__qualname__", type(callback).__qualname__)
    return listener(tell, f"callbacks[{number}], {name}")
