"""The types that an option may have, and durations such as ``20m`` as options."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)\s*")


def parse_duration(text: str) -> float:
    """Convert a duration such as ``1h30m`` to seconds.

    Raises:
        ValueError: ``text`` is no duration, or its units do not go from large to small.
    """
    rest = text.strip()
    total = 0.0
    last = float("inf")
    if not rest:
        raise ValueError("an empty text is no duration")
    while rest:
        part = _PART.match(rest)
        if part is None or _UNITS[part[2]] >= last:
            raise ValueError(f"{text!r} is no duration; write it like 90s, 20m or 1h30m")
        last = _UNITS[part[2]]
        total += float(part[1]) * last
        rest = rest[part.end() :]
    return total


SCALARS = (bool, int, float, str, Path, types.NoneType)


def form_of(kind: Any) -> tuple[str, Any]:
    """The form of an option's type, such as ``union``, and the parts of the type.

    The reader of options has a method with the name of each form, which reads values of this form.

    Args:
        kind: the type, as annotated at a field of an options class.

    Returns:
        A pair, such as ``scalar`` with one of ``SCALARS``, or ``section`` with an attrs class. The
        form ``union`` comes with its members, and ``choice`` with a mapping from value to meaning.
        A ``mapping`` has its values' type, and a ``sequence`` a class and its items' type. A tuple
        of a fixed length is ``entries``, with its items' types. ``anything`` has None, and
        ``unknown`` the annotation.
    """
    # Names of types: those of ``NewType``, and of ``type`` statements.
    kind = getattr(kind, "__supertype__", getattr(kind, "__value__", kind))
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind in (Any, object, None):
        return "anything", None
    if origin in (Union, types.UnionType):
        return "union", arguments
    if origin is Literal:
        return "choice", {choice: choice for choice in arguments}
    if isinstance(origin, type):
        return _form_of_class(kind, origin, arguments)
    return "unknown", kind


def _form_of_class(kind: Any, origin: type, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    if origin in SCALARS:
        return "scalar", origin
    if issubclass(origin, Enum):
        return "choice", {member.value: member for member in origin}
    if attrs.has(origin):
        return "section", kind
    if issubclass(origin, Mapping):
        return "mapping", arguments[1] if arguments else Any
    if issubclass(origin, Sequence | AbstractSet) and not issubclass(origin, str | bytes):
        fixed = origin is tuple and arguments and arguments[-1] is not Ellipsis
        items = (origin, arguments[0] if arguments else Any)
        return ("entries", arguments) if fixed else ("sequence", items)
    return "unknown", kind
