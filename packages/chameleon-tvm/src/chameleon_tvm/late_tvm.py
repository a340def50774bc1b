"""TVM under the names of ``quick_tvm``, but imported only when a program first uses a name.

Processes that check a vendor's kernel make operators and compute their references without TVM. This
module saves them the import. Commands that only show a pipeline make design spaces of templates
without TVM, too.
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
        return getattr(importlib.import_module("chameleon_tvm.quick_tvm"), self._name)


if TYPE_CHECKING:
    from chameleon_tvm.quick_tvm import Schedule, Target, TargetKind, codegen, te, tirx, tvm
else:
    Schedule, Target, TargetKind = map(_Late, ("Schedule", "Target", "TargetKind"))
    codegen, te, tirx, tvm = map(_Late, ("codegen", "te", "tirx", "tvm"))

__all__ = ["Schedule", "Target", "TargetKind", "codegen", "te", "tirx", "tvm"]
