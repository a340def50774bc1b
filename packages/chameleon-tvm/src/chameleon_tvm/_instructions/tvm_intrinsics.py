"""Imports TVM's tensor intrinsics without the slow look-up of their source code."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()


@contextmanager
def skip_source_lines() -> Iterator[None]:
    """Let ``inspect.stack`` skip source lines while the context lasts, to import TVM faster.

    TVMScript's decorators call it to capture variables, for hundreds of functions.
    """
    with _LOCK:
        original = inspect.stack

        def without_source(context: int = 1) -> list[inspect.FrameInfo]:
            del context
            return [
                inspect.FrameInfo(frame, code.co_filename, line, code.co_name, None, None)
                for frame, line in traceback.walk_stack(sys._getframe(1))  # noqa: SLF001
                for code in (frame.f_code,)
            ]

        inspect.stack = without_source
        try:
            yield
        finally:
            inspect.stack = original


def load_tensor_intrinsics() -> None:
    """Register TVM's tensor intrinsics. TVM's rules for tensor cores and VNNI need them."""
    with skip_source_lines():
        importlib.import_module("tvm.s_tir.tensor_intrin")
