"""The same names of TVM as ``quick_tvm``, but the import of TVM waits until a name is used.

Some processes import modules that can use TVM, but do not use it. These processes then need not
wait for the import. Examples are processes that check a vendor's kernel, and commands that only
show a pipeline.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _Late:
    """Stands for an object of ``quick_tvm``, and imports it at the first use of an attribute."""

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
    from chameleon_tvm._quick_tvm import Schedule, Target, TargetKind, codegen, te, tirx, tvm
else:
    Schedule, Target, TargetKind = map(_Late, ("Schedule", "Target", "TargetKind"))
    codegen, te, tirx, tvm = map(_Late, ("codegen", "te", "tirx", "tvm"))

__all__ = ["Schedule", "Target", "TargetKind", "codegen", "te", "tirx", "tvm"]
