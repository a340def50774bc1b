"""Where logs go. Libraries only log; this is the one place that says how (stderr, for people)."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(*, debug: bool = False, verbose: bool = False) -> None:
    """Send structlog's lines to stderr: warnings, with ``verbose`` more, with ``debug`` all."""
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Looked up for each logger, so that whoever replaces stderr later gets the lines.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
