"""TVM under the same names as in ``quick_tvm``, imported when something of it is first used.

Operators are made, and their references computed, in processes that check a vendor's kernel and
have no use for TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _Late:
    """Stands for a name of ``quick_tvm``."""

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
