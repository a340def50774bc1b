"""What a function of the corpus returns: a network ready for inference, and an example."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]

_SAMPLES = 2


def made(network: nn.Module, *inputs: torch.Tensor) -> Made:
    """A network in eval mode whose batch normalisations have seen random inputs, and its example.

    Those of trained networks have the statistics of what they normalise. With means of zero and
    variances of one, signals fade over fifty random layers until outputs are denormal numbers:
    slow to compute with, and nothing to check a kernel by.

    Args:
        network: changed in place.
        inputs: the example.
    """
    network.eval()
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    if norms:
        for norm in norms:
            norm.momentum = None  # the mean of all it sees, rather than a moving one
            norm.train()
        with torch.no_grad():
            network(*(_several(one) for one in inputs))
        network.eval()
    return network, inputs


def _several(example: torch.Tensor) -> torch.Tensor:
    """Random inputs like an example of one; statistics of one value a channel would be none."""
    if not example.is_floating_point() or len(example) >= _SAMPLES:
        return example
    return torch.randn(_SAMPLES, *example.shape[1:])
