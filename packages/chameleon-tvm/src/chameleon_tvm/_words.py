"""Short texts for messages: errors in one line, dtypes of a network, names as identifiers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from chameleon_core.api import words
from chameleon_core.plugin_api import ChameleonError

from chameleon_tvm._types import FLOAT32, display_name

WAY_OUT = (
    "Write that part of the network with other operators, or tune its operators one by one under "
    "`model: {operators: [...]}`."
)
"""Hint of errors about an operator that cannot be compiled."""

TVM_ERRORS = (RuntimeError, ValueError, TypeError, LookupError)
"""Classes of errors that TVM raises if it refuses something. TVM's own errors are subclasses of
``RuntimeError``."""

_OPERATOR_RECORD = re.compile(r"^In ir\.Op\(.*?support_level=\d+\), ")
"""How TVM writes the whole record of an operator in front of a message."""

_MAX_CHARACTERS = 200
"""Largest number of characters of a library's message that ``one_line`` returns."""


def first_line(error: BaseException) -> str:
    """The class of an error and the first line of its message, for another message."""
    text = _OPERATOR_RECORD.sub("", str(error).strip())
    kind = type(error).__name__
    return f"{kind}: {text.splitlines()[0][:300]}" if text else kind


def telling_line(error: BaseException) -> str:
    """The most informative line of an error message of TVM, which has a long back trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    informative = [line for line in lines if "rror" in line or "Check failed" in line]
    return (informative or lines or [type(error).__name__])[-1][:300]


def one_line(error: Exception) -> str:
    """The first non-empty line of an error message, shortened if it is long.

    If the error says that a process ended, the line comes from the error's hint, which holds the
    process's last output.
    """
    hint = error.hint if isinstance(error, ChameleonError) and "ended with" in str(error) else None
    lines = [line.strip() for line in (hint or str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def identifier(name: str) -> str:
    """A task's name with letters, digits and ``_`` only, for file names and symbols."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)


TUNED = "tuned_"
"""The prefix of the names of tuned kernels' functions; see ``symbol_of``."""


def symbol_of(task: str) -> str:
    """The name of a tuned kernel's function.

    Args:
        task: The name of the kernel's task.
    """
    return TUNED + identifier(task)


def chosen_types(kinds: Iterable[str]) -> tuple[str, ...]:
    """The dtypes other than float32 that a network's operators use; float32 if there are no others.

    Args:
        kinds: The dtype in which each operator of the network computes.
    """
    return tuple(sorted({display_name(kind) for kind in kinds} - {FLOAT32})) or (FLOAT32,)


def types_in_words(kinds: Collection[str]) -> str:
    """A phrase for the precision of a network or a rival, such as ``int8, the rest float32``.

    Args:
        kinds: The dtypes in which the network's operators compute.
    """
    chosen = chosen_types(kinds)
    rest = f", the rest {FLOAT32}" if FLOAT32 in kinds and FLOAT32 not in chosen else ""
    return words.listing(chosen).replace(" or ", " and ") + rest
