"""TVM under the names of ``quick_tvm``, but imported only when a program first uses one of them.

Processes that check a vendor's kernel make operators and compute their references without TVM. This
module saves them the import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _Late:
    """Stands for an object of ``quick_tvm``, and imports it at the first use of an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        module = importlib.import_module("chameleon_tvm.quick_tvm")
        value = getattr(getattr(module, self._name), attribute)
        setattr(self, attribute, value)
        return value


if TYPE_CHECKING:
    from chameleon_tvm.quick_tvm import te, tirx, tvm
else:
    te, tirx, tvm = map(_Late, ("te", "tirx", "tvm"))

__all__ = ["te", "tirx", "tvm"]
