"""Synaptic flow (Tanaka et al., NeurIPS 2020), without data."""

from __future__ import annotations

import math

import torch
from chameleon_core.plugins import NoOptions

from chameleon_transforms.contract import Judged, NetworkScore


class SynapticFlow(NetworkScore):
    """The sum over weights of |weight times gradient| of the outputs' sum, as a logarithm.

    Weights are their absolute values, the image is of ones, and normalisation is left out, as in
    Abdelfattah et al. (ICLR 2021, section 3.2).
    """

    def __init__(self, options: NoOptions) -> None:
        del options

    def score(self, network: Judged) -> float:
        weights = network.parameters()
        signs = [one.detach().sign() for one in weights]
        with torch.no_grad():
            for one in weights:
                one.abs_()
        try:
            for one in weights:
                one.requires_grad_(requires_grad=True)
            outputs, _ = network.run(torch.ones_like(network.images[:1]), normalised=False)
            gradients = torch.autograd.grad(outputs.abs().sum(), weights, allow_unused=True)
            total = sum(
                float((one.detach() * gradient).abs().sum())
                for one, gradient in zip(weights, gradients, strict=True)
                if gradient is not None
            )
        finally:
            with torch.no_grad():
                for one, sign in zip(weights, signs, strict=True):
                    one.requires_grad_(requires_grad=False).mul_(sign)
        return math.log(total) if total > 0 else -math.inf
