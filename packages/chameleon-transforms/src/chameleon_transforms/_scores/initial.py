"""Scores that judge untrained networks, and two baselines: numbers of weights and multiply-adds.

A score is useful only if it predicts a network's accuracy better than these two numbers.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from chameleon_transforms._contract import NetworkScore, UntrainedNetwork


class FisherPotential(NetworkScore):
    """The approximate effect on the loss of removing each channel, summed over the network."""

    def score(self, network: UntrainedNetwork) -> float:
        outputs, layer_outputs = network.run(network.images)
        loss = nn.functional.cross_entropy(outputs, network.labels)
        values = list(layer_outputs.values())
        gradients = torch.autograd.grad(loss, values)
        # The loss is a mean over the batch; the gradient of one sample's own loss is n times that.
        count = len(network.labels)
        total = 0.0
        for value, gradient in zip(values, gradients, strict=True):
            product = (value.detach() * gradient).flatten(2).sum(2) * count
            total += float(product.square().mean(0).sum()) / 2
        return total


class SynapticFlow(NetworkScore):
    """The logarithm of the sum over weights of ``|weight * gradient of the summed outputs|``."""

    def score(self, network: UntrainedNetwork) -> float:
        weights = network.parameters()
        signs = [weight.detach().sign() for weight in weights]
        with torch.no_grad():
            for part in weights:
                part.abs_()
        try:
            for part in weights:
                part.requires_grad_(requires_grad=True)
            outputs, _ = network.run(torch.ones_like(network.images[:1]), normalised=False)
            gradients = torch.autograd.grad(outputs.abs().sum(), weights, allow_unused=True)
            total = sum(
                float((part.detach() * gradient).abs().sum())
                for part, gradient in zip(weights, gradients, strict=True)
                if gradient is not None
            )
        finally:
            with torch.no_grad():
                for part, sign in zip(weights, signs, strict=True):
                    part.requires_grad_(requires_grad=False).mul_(sign)
        return math.log(total) if total > 0 else -math.inf


class ActivationOverlap(NetworkScore):
    """Compares the activation patterns of samples (Mellor et al., ICML 2021)."""

    def score(self, network: UntrainedNetwork) -> float:
        with torch.no_grad():
            _, layer_outputs = network.run(network.images)
        count = len(network.images)
        same = torch.zeros(count, count, dtype=torch.float64)
        total = 0
        for value in layer_outputs.values():
            pattern = (value > 0).flatten(1).to(torch.float64)
            same += pattern @ pattern.T + (1 - pattern) @ (1 - pattern).T
            total += pattern.shape[1]
        _, determinant = torch.linalg.slogdet(same / total)
        return float(determinant)


class Parameters(NetworkScore):
    """The number of weights of convolutions and matrix products."""

    proportional = True

    def score(self, network: UntrainedNetwork) -> float:
        return float(sum(parameter.numel() for parameter in network.parameters()))


class MultiplyAdds(NetworkScore):
    """The number of multiply-adds of all convolutions, as a baseline for other scores."""

    proportional = True

    def score(self, network: UntrainedNetwork) -> float:
        return float(network.multiply_adds)
