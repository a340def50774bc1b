"""Chameleon as a backend of ``torch.compile`` and of ONNX."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chameleon_system.api import cache_path, pause_garbage_collection, write_cached_bytes

from chameleon_networks._backends.idle_run import early_process

if TYPE_CHECKING:
    from torch import nn

__all__ = ["compile"]

COMPILED_MODULES = "modules"
"""Folder in the user's cache folder with a mark of each module that was compiled."""

_LOCK = threading.Lock()


class FallbackError(Exception):
    """The reason why Chameleon cannot compile a graph, so that torch computes it."""


def compile(module: nn.Module, example: Any, **options: Any) -> nn.Module:  # noqa: A001 - named as in torch
    """Compile a torch module for the shapes of an example, with ``torch.compile`` and Chameleon."""
    import torch  # noqa: PLC0415 - takes seconds, and ONNX's backend needs none

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(Exception):  # after an error, the process starts later
            known = cache_path(COMPILED_MODULES, repr(module))
            if "torch._dynamo" not in sys.modules and not known.exists() and "mode" not in options:
                # The process imports TVM while torch imports what it traces with.
                stack.enter_context(early_process())
            write_cached_bytes(known, b"")
        # Two threads at once would both register the backend's name in torch.
        with pause_garbage_collection(), _LOCK:
            compiled: nn.Module = torch.compile(
                module, backend="chameleon", dynamic=False, options=options
            )
        with torch.inference_mode():
            if isinstance(example, Mapping):
                compiled(**example)
            else:
                compiled(*(example if isinstance(example, tuple) else (example,)))
    return compiled
