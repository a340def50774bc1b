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

from chameleon_testing.sentences import ConformanceError
from chameleon_testing.suites.base import ConformanceSuite


@attrs.frozen(kw_only=True)
class Outcome:
    """How one check ended.

    Attributes:
        name: of the check's method, without ``test_``.
        sentence: what is checked.
        failure: what is wrong, as a sentence; None where nothing is.
        skipped: why it was not checked; None where it was.
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
    """
    chosen = type(suite.__name__, (suite,), dict(attributes))
    # In the order in which they are written, those that all suites have first.
    written = [name for one in reversed(chosen.__mro__) for name in vars(one)]
    for name in dict.fromkeys(name for name in written if name.startswith("test_")):
        check = getattr(chosen, name)
        sentence = inspect.getdoc(check) or name
        outcome = Outcome(name=name.removeprefix("test_"), sentence=sentence.partition("\n")[0])
        try:
            with contextlib.redirect_stdout(sys.stderr):
                check(chosen())
        except unittest.SkipTest as error:
            outcome = attrs.evolve(outcome, skipped=str(error))
        except ConformanceError as error:
            outcome = attrs.evolve(outcome, failure=str(error), error=error)
        except ChameleonError as error:
            outcome = attrs.evolve(outcome, failure=with_hint(error), error=error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
            words = f"it raises {type(error).__name__}: {error}"
            outcome = attrs.evolve(outcome, failure=words.rstrip(": "), error=error)
        yield outcome


__all__ = ["Outcome", "outcomes"]
