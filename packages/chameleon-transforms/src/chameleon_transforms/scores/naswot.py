"""Overlap of activation patterns (Mellor et al., ICML 2021)."""

from __future__ import annotations

import torch
from chameleon_core.plugins import NoOptions

from chameleon_transforms.contract import Judged, NetworkScore


class ActivationOverlap(NetworkScore):
    """The logarithm of the determinant of how many activations two samples have in common.

    A pattern is which of a layer's outputs are positive. Counts are divided by the number of
    activations: networks of other widths are compared.
    """

    def __init__(self, options: NoOptions) -> None:
        del options

    def score(self, network: Judged) -> float:
        with torch.no_grad():
            _, sites = network.run(network.images)
        count = len(network.images)
        same = torch.zeros(count, count, dtype=torch.float64)
        total = 0
        for value in sites.values():
            pattern = (value > 0).flatten(1).to(torch.float64)
            same += pattern @ pattern.T + (1 - pattern) @ (1 - pattern).T
            total += pattern.shape[1]
        _, determinant = torch.linalg.slogdet(same / total)
        return float(determinant)
