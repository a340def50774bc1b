"""Sets up logging for commands. Libraries only log; this module writes the lines to stderr."""

from __future__ import annotations

import logging
import sys

from chameleon_system.api import block_import

from chameleon_cli._colours import in_colours
from chameleon_cli._json_lines import json_lines

# Tracebacks are plain, so rich is not needed. It takes longer to import than structlog.
with block_import("rich"):
    import structlog
    from structlog.typing import EventDict, Processor, WrappedLogger


def configure(*, debug: bool = False, verbose: bool = False) -> None:
    """Show the messages that libraries log on stderr: warnings and errors by default.

    If stderr is written as JSON lines, the messages are too.

    Args:
        debug: whether to show all messages.
        verbose: whether to show messages of level ``info`` too.
    """
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if debug else [_in_one_line]),
            *(_for_people() if json_lines() is None else _FOR_PROGRAMS),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # stderr is looked up for each logger, because it may be replaced later.
        logger_factory=lambda *_: structlog.PrintLogger(
            getattr(json_lines(), "stream", sys.stderr)
        ),
        cache_logger_on_first_use=False,
    )


def _for_people() -> tuple[Processor, ...]:
    return (
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(
            colors=in_colours(sys.stderr), exception_formatter=structlog.dev.plain_traceback
        ),
    )


_FOR_PROGRAMS: tuple[Processor, ...] = (
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(),
)


def _in_one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace a traceback, which only ``--debug`` shows, by the exception's type and message."""
    if event.pop("exc_info", None):
        error = sys.exc_info()[1]
        event["error"] = f"{type(error).__name__}: {error}"
    return event
