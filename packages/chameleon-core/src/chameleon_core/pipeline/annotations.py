"""The types that an option may have: one reading of annotations, for values and for schemas."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs

SCALARS = (bool, int, float, str, Path, types.NoneType)


def form_of(kind: Any) -> tuple[str, Any]:
    """The form of an annotation, which is the name of a reader's method, and what is in it.

    Returns:
        ``anything``; ``union`` with its members; ``choice`` with what each value stands for;
        ``scalar`` with one of ``SCALARS``; ``section`` with an attrs class; ``mapping`` with the
        type of its values; ``sequence`` with a class and the types of its entries; or ``unknown``.
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
        return "sequence", (origin, arguments)
    return "unknown", kind


def fixed_entries(origin: type, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The types of a tuple's entries, or None of a sequence of any length."""
    fixed = origin is tuple and arguments and arguments[-1] is not Ellipsis
    return arguments if fixed else None
