"""Messages that torch logs and prints while it exports, shown after it or kept with its error.

If torch fails, it logs a traceback and prints code before it raises. The error's one sentence would
be lost below a page of that.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def torch_messages_held_back() -> Iterator[None]:
    """Hold back all that torch logs and prints.

    Without an exception, the messages appear at the end. Otherwise they become a note of the
    exception, which a traceback shows.
    """
    loggers = [_HeldBack(logger) for logger in _torch_loggers()]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    except Exception as error:
        logged = [record.getMessage() for one in loggers for record in one.records]
        said = [*logged, out.getvalue().strip(), err.getvalue().strip()]
        if any(said):
            error.add_note("\n".join(filter(None, said)))
        raise
    else:
        sys.stdout.write(out.getvalue())
        sys.stderr.write(err.getvalue())
        for one in loggers:
            one.tell()
    finally:
        for one in loggers:
            one.release()


class _HeldBack(logging.Handler):
    """Takes the place of a logger's handlers and keeps its records.

    Args:
        logger: one with handlers.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._logger = logger
        self._handlers = logger.handlers
        logger.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def tell(self) -> None:
        """Give the records to those whose place this one took."""
        for record in self.records:
            for handler in self._handlers:
                if record.levelno >= handler.level:
                    handler.handle(record)

    def release(self) -> None:
        """Give the others their place back."""
        self._logger.handlers = self._handlers


def _torch_loggers() -> list[logging.Logger]:
    """Those of torch that have handlers."""
    return [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.partition(".")[0] == "torch"
        and isinstance(logger, logging.Logger)
        and logger.handlers
    ]


__all__ = ["torch_messages_held_back"]
