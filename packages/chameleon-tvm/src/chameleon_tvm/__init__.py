"""TensorIR for Chameleon: operators, design spaces, networks, building and verifying."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["load"]


def load(folder: str | Path) -> Callable[..., Any]:
    """A network that ``chameleon run`` or ``chameleon compile`` delivered.

    Args:
        folder: the folder ``network`` of the run.

    Returns:
        A function of one array per input; it returns an array, or a list of several.

    Raises:
        RuntimeError: the network was built for a CPU with features that this one lacks.
    """
    from chameleon_tvm.graph.load import load as loaded  # noqa: PLC0415 - needs TVM

    network: Callable[..., Any] = loaded(folder)
    return network
