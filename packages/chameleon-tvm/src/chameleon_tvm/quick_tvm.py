"""TVM imported without torch: modules of this package take TVM from here.

TVM's FFI imports torch wherever it is installed, for tensors that are shared without a copy. That
takes longer than the rest of TVM, in the command line and in every worker, and is used nowhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Iterator[None]:
    """Make importing a module that is not imported yet fail while the context lasts."""
    absent = module not in sys.modules
    if absent:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent and sys.modules.get(module) is None:
            sys.modules.pop(module, None)


with without("torch"):
    import tvm
    from tvm import te, tirx
    from tvm.s_tir import Schedule, Trace
    from tvm.target import Target, TargetKind, codegen

__all__ = ["Schedule", "Target", "TargetKind", "Trace", "codegen", "te", "tirx", "tvm", "without"]
