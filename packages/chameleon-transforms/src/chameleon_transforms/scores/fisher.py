"""Fisher Potential (Turner et al., ASPLOS 2021, section 5.2)."""

from __future__ import annotations

import torch
from chameleon_core.plugins import NoOptions
from torch import nn

from chameleon_transforms.contract import Judged, NetworkScore


class FisherPotential(NetworkScore):
    """The approximated effect on the loss of removing each channel, summed over the network.

    Per channel 1/2 the mean over the batch of (sum over positions of activation times gradient)
    squared; per layer the sum over channels, per network the sum over layers (equations 1 to 4).
    """

    def __init__(self, options: NoOptions) -> None:
        del options

    def score(self, network: Judged) -> float:
        outputs, sites = network.run(network.images)
        loss = nn.functional.cross_entropy(outputs, network.labels)
        values = list(sites.values())
        gradients = torch.autograd.grad(loss, values)
        # The loss is a mean over the batch; the gradient of one sample's own loss is n times that.
        count = len(network.labels)
        total = 0.0
        for value, gradient in zip(values, gradients, strict=True):
            product = (value.detach() * gradient).flatten(2).sum(2) * count
            total += float(product.square().mean(0).sum()) / 2
        return total
