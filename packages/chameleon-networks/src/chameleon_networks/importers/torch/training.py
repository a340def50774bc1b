"""Modules of torch that compute otherwise in training than when they are evaluated."""

from __future__ import annotations

import importlib
from typing import Any

import structlog

log = structlog.get_logger()

_SHOWN = 3
"""Modules that a warning names."""


def evaluated(network: Any) -> Any:
    """A network that is evaluated, not trained; says so if that changes its answers.

    Args:
        network: a torch module, changed in place.
    """
    changed = [name for name, module in network.named_modules() if _trains_otherwise(module)]
    if changed:
        log.warning(
            "network_in_training_mode",
            modules=changed if len(changed) <= _SHOWN else [*changed[:_SHOWN], "..."],
            why="these compute otherwise in training; the network is delivered as `.eval()` makes "
            "it, without dropout and with the running statistics of its batch norms",
            next="call `.eval()` on the module before you return it",
        )
    try:
        return network.eval()
    except NotImplementedError:
        return network  # one that was exported before it was quantized stays what it is


def _trains_otherwise(module: Any) -> bool:
    """Whether a module is in training mode and computes otherwise in it than in evaluation."""
    nn = importlib.import_module("torch").nn
    drops = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0  # noqa: SLF001
    # Attentions and recurrent layers call so what they leave out themselves.
    rate = getattr(module, "dropout", 0)
    drops = drops or (isinstance(rate, float) and rate > 0)
    averages = getattr(module, "running_mean", None) is not None
    return module.training and (drops or averages or isinstance(module, nn.RReLU))
