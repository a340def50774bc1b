"""Scores that judge untrained networks, and two baselines: numbers of weights and multiply-adds.

A score is useful only if it predicts a network's accuracy better than these two numbers.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from chameleon_transforms._contract import NetworkScore, UntrainedNetwork


class FisherPotential(NetworkScore):
    """The approximate effect on the loss of removing each channel, summed over the network.

    For each channel, it is half the mean over the batch of (sum over positions of activation times
    gradient) squared. The score is the sum over all channels of all layers (Turner et al., ASPLOS
    2021, section 5.2, equations 1 to 4).
    """

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
    """The logarithm of the sum over weights of ``|weight * gradient of the summed outputs|``.

    Synaptic flow (Tanaka et al., NeurIPS 2020, in the form of Abdelfattah et al., ICLR 2021,
    section 3.2) needs no data. Weights are replaced by their absolute values, the image consists of
    ones, and normalization is left out.
    """

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
    """Compares the activation patterns of samples (Mellor et al., ICML 2021).

    A pattern says which of a layer's outputs are positive. A matrix has an element for each pair of
    samples: the share of outputs with the same sign in both samples. The score is the logarithm of
    the matrix's determinant. It is high if the network distinguishes the samples well.
    """

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
    """The number of multiply-adds of all convolutions, as a baseline for other scores.

    A network with half of the multiply-adds needs only half of the original's score to be accepted
    (``NetworkScore.proportional``), and it has half of this score. If this score is the first of a
    pipeline, the search therefore accepts all networks.
    """

    proportional = True

    def score(self, network: UntrainedNetwork) -> float:
        return float(network.multiply_adds)
