"""Runs a conformance suite without pytest."""

from __future__ import annotations

import contextlib
import inspect
import sys
import unittest
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from chameleon_core.errors import ChameleonError
from chameleon_core.words import with_hint

from chameleon_testing.suites.base import ConformanceSuite


@attrs.define(kw_only=True)
class Outcome:
    """How one check ended.

    Attributes:
        name: of the check's method, without ``test_``.
        sentence: what is checked.
        failure: what is wrong, as a sentence; None if nothing is.
        skipped: why it was not checked; None if it was.
        error: the exception behind a failure, or None.
    """

    name: str
    sentence: str
    failure: str | None = None
    skipped: str | None = None
    error: BaseException | None = None


def outcomes(suite: type[ConformanceSuite], attributes: Mapping[str, Any]) -> Iterator[Outcome]:
    """Run the checks of a suite, one after the other; what plugins print goes to stderr.

    Args:
        suite: a suite of a kind, or one that is derived from it.
        attributes: what is set of it: ``record``, ``options``, ``task`` and so on.

    Raises:
        ChameleonError: Python leaves assertions out, and with them all checks.
    """
    if not __debug__:
        raise ChameleonError("checks are assertions, which `python -O` leaves out")
    chosen = type(suite.__name__, (suite,), dict(attributes))
    # In the order in which they are written, those that all suites have first.
    written = [name for one in reversed(chosen.__mro__) for name in vars(one)]
    for name in dict.fromkeys(name for name in written if name.startswith("test_")):
        check = getattr(chosen, name)
        sentence, _, _ = (inspect.getdoc(check) or name).partition("\n")
        outcome = Outcome(name=name.removeprefix("test_"), sentence=sentence)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                check(chosen())
        except unittest.SkipTest as error:
            outcome.skipped = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
            outcome.error, outcome.failure = error, _failure(error)
        yield outcome


def _failure(error: BaseException) -> str:
    """A sentence of what is wrong."""
    if isinstance(error, ChameleonError):
        return with_hint(error)
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    return f"it raises {type(error).__name__}: {error}".rstrip(": ")
