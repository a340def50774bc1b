"""torchvision beside a CPU build of torch, for which PyPI has no wheel of it."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import torch

_OPERATORS = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_definitions = torch.library.Library("torchvision", "FRAGMENT")


def torchvision_models() -> Any:
    """``torchvision.models``.

    PyPI's wheel is built against CUDA: its library of operators does not load beside a CPU build
    of torch, and then `import torchvision` fails, since it registers shapes for operators that
    there are not. None of the networks here calls them, so their names are enough.
    """
    for name in _OPERATORS:
        with contextlib.suppress(RuntimeError):  # a build that fits has them already
            _definitions.define(f"{name}{_SIGNATURE}")
    return importlib.import_module("torchvision.models")
