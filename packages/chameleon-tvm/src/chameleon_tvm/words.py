"""Errors of libraries and types of networks in a few words, and names of letters alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from chameleon_core.errors import ChameleonError
from chameleon_core.words import listing

from chameleon_tvm.types import FLOAT32, display_name

WAY_OUT = (
    "Write that part of the network with other operators, or tune its operators one by one under "
    "`model: {operators: [...]}`."
)
"""What to do about an operator that cannot be compiled."""

TVM_ERRORS = (RuntimeError, ValueError, TypeError, LookupError)
"""What TVM raises where it refuses something: its own errors are ``RuntimeError`` beneath."""

_LONGEST = 200
"""Letters of a library's own words that a sentence may hold."""


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of what it says."""
    text = str(error).strip()
    kind = type(error).__name__
    return f"{kind}: {text.splitlines()[0][:300]}" if text else kind


def telling_line(error: BaseException) -> str:
    """The most telling line of one of TVM's errors, which come with long back traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "Check failed" in line]
    return (telling or lines or [type(error).__name__])[-1][:300]


def one_line(error: Exception) -> str:
    """The error in one line: the first that says something, cut if it goes on for long.

    If a process died, its last words are the reason.
    """
    words = error.hint if isinstance(error, ChameleonError) and "ended with" in str(error) else None
    lines = [line.strip() for line in (words or str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def identifier(name: str) -> str:
    """A task's name as a part of a file's name or of a symbol: letters, digits and ``_``."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)


def chosen_types(kinds: Iterable[str]) -> tuple[str, ...]:
    """The types beside float32 that a network computes in; float32 without any.

    Args:
        kinds: types of its operators.
    """
    return tuple(sorted({display_name(kind) for kind in kinds} - {FLOAT32})) or (FLOAT32,)


def types_in_words(kinds: Collection[str]) -> str:
    """The precision of a network, such as ``int8, the rest float32``; that of its rivals, too.

    Args:
        kinds: types of all of its operators.
    """
    chosen = chosen_types(kinds)
    rest = f", the rest {FLOAT32}" if FLOAT32 in kinds and FLOAT32 not in chosen else ""
    return listing(chosen).replace(" or ", " and ") + rest
