"""Small parts of the messages in errors, results and pages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: ``; did you mean 'x'?``, or "".

    Args:
        word: the unknown name.
        known: the names that exist.
    """
    alike = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{alike[0]}'?" if alike else ""


def listing(names: Sequence[str]) -> str:
    """Names as ``a, b or c``."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def counted(count: int, noun: str) -> str:
    """A count with its noun for messages, such as ``1 task`` or ``2 tasks``.

    The plural of the noun must end in "s".
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def with_article(noun: str) -> str:
    """A noun with its article: ``a sampler``, ``an explorer``."""
    return f"an {noun}" if noun[:1].lower() in set("aeiou") else f"a {noun}"


def in_one_line(said: str | Exception) -> str:
    """The lines of a message as one, with a semicolon after each line that ends without a mark.

    If an error has no message, the result is the error's class.
    """
    text = str(said).strip() or ("" if isinstance(said, str) else type(said).__name__)
    return " ".join(re.sub(r"(?<=[^\s.,:;!?])\s*\n", "; ", text).split())


_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_MANY = 1e3
_LARGE = 100.0


def in_seconds(value: float | None, form: str = ".4g") -> str:
    """A time with a suitable unit, such as ``1.25 ms``.

    Args:
        value: the time in seconds; None is written as ``-``.
        form: the format of the number, as for ``format``.
    """
    if value is None:
        return "-"
    rounded = float(format(value, form))
    unit, scale = next((unit for unit in _UNITS if rounded >= unit[1]), _UNITS[-1])
    # Without another format, many seconds would be written with an exponent.
    return f"{format(rounded / scale, form if rounded < _MANY else '.0f').rstrip('.')} {unit}"


def in_ratio(value: float) -> str:
    """A ratio of times as text: with two decimals below 100, without decimals above.

    Examples are ``2.75`` and ``1050``.

    Args:
        value: the ratio.
    """
    return f"{value:.2f}" if value < _LARGE else f"{value:.0f}"
