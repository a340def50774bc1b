"""Whole networks for Chameleon: reading, compiling, quantizing, verifying, delivering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["load"]


def load(folder: str | Path, *, threads: int = 0, instances: int = 1) -> Callable[..., Any]:
    """A network that ``chameleon run`` or ``chameleon compile`` delivered.

    Any number of threads may call it. It has a method ``close``.

    Args:
        folder: the folder ``network`` of the run.
        threads: that compute an inference; 0 for as many as it was measured with, within what this
            process may use.
        instances: inferences that run at the same time.

    Returns:
        A function of one array per input; it returns an array, or a list of several.

    Raises:
        RuntimeError: a file is missing, cut off or changed, or the network was built for a CPU with
            features that this one lacks.

    Example:
        >>> import numpy as np
        >>> from chameleon_networks import load
        >>> network = load("runs/resnet_small/network")
        >>> network(np.zeros((1, 3, 32, 32), np.float32)).shape
        (1, 10)
    """
    from chameleon_networks.package.load import load as loaded  # noqa: PLC0415 - needs NumPy

    network: Callable[..., Any] = loaded(folder, threads=threads, instances=instances)
    return network
