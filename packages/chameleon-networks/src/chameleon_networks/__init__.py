"""Whole networks for Chameleon: reading, compiling, quantizing, verifying, delivering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["load"]


def load(folder: str | Path, *, threads: int = 0, instances: int = 1) -> Callable[..., Any]:
    """Load a network that ``chameleon run`` or ``chameleon compile`` delivered.

    Any number of threads may call the returned function. Its method ``close`` frees the network.

    Args:
        folder: The folder ``network`` inside the run folder.
        threads: Number of threads that compute one inference. 0 chooses the number that the network
            was measured with, or the number of cores that this process may use if that is smaller.
        instances: Number of inferences that may run at the same time.

    Returns:
        A function that takes the inputs of the network as arrays, by position or by name. It
        returns what the model returns, with arrays for tensors. Its attributes ``inputs`` and
        ``outputs`` list names, shapes and dtypes.

    Raises:
        RuntimeError: A file is missing, cut off or changed, or this CPU lacks features that the
            network needs.

    Example:
        >>> import numpy as np
        >>> from chameleon_networks import load
        >>> network = load("runs/resnet_small/network")
        >>> network(np.zeros((1, 3, 32, 32), np.float32)).shape
        (1, 10)
        >>> network.inputs[0].name, network.inputs[0].shape
        ('image', (1, 3, 32, 32))
    """
    from chameleon_networks._artifact.load import load as loaded  # noqa: PLC0415 - needs NumPy

    network: Callable[..., Any] = loaded(folder, threads=threads, instances=instances)
    return network
