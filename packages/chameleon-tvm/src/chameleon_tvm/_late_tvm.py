"""The names of ``_quick_tvm``, whose import waits until a name is used.

Processes that import such modules but do not use TVM start faster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _LazyObject:
    """Stands for an object of ``_quick_tvm``, which it imports at the first use of an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._value(), attribute)
        setattr(self, attribute, value)
        return value

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._value()(*arguments, **named)

    def _value(self) -> Any:
        return getattr(importlib.import_module("chameleon_tvm._quick_tvm"), self._name)


if TYPE_CHECKING:
    from chameleon_tvm._quick_tvm import (
        Schedule,
        Target,
        TargetKind,
        codegen,
        structural_map,
        te,
        tirx,
        tvm,
    )
else:
    Schedule, Target, TargetKind = map(_LazyObject, ("Schedule", "Target", "TargetKind"))
    codegen, te, tirx, tvm = map(_LazyObject, ("codegen", "te", "tirx", "tvm"))
    structural_map = _LazyObject("structural_map")

__all__ = ["Schedule", "Target", "TargetKind", "codegen", "structural_map", "te", "tirx", "tvm"]
