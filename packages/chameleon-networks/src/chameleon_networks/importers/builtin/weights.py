"""Random weights that depend on the network and a seed alone, and keep signals alive."""

from __future__ import annotations

import torch
from torch import nn


def initialise(network: nn.Module, seed: int = 0) -> nn.Module:
    """Fill a network with random weights and put it into inference mode.

    Weights are scaled by their fan-in (He et al. 2015) and normalisation layers get statistics of
    their own. So outputs neither vanish nor explode, and a wrong kernel anywhere in the network
    shows at its end.

    Args:
        network: changed in place.
        seed: of a generator of its own; torch's global one is left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            _fill(module, generator)
    return network.eval()


def _fill(module: nn.Module, generator: torch.Generator) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        fan_in = module.weight[0].numel()
        module.weight.normal_(0.0, (2.0 / fan_in) ** 0.5, generator=generator)
        if module.bias is not None:
            module.bias.uniform_(-0.1, 0.1, generator=generator)
    elif isinstance(module, nn.Embedding):
        module.weight.normal_(0.0, 0.5, generator=generator)
    elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        module.weight.uniform_(0.5, 1.0, generator=generator)
        module.bias.uniform_(-0.1, 0.1, generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            if module.running_mean is not None:
                module.running_mean.uniform_(-0.1, 0.1, generator=generator)
            if module.running_var is not None:
                module.running_var.uniform_(0.8, 1.2, generator=generator)
