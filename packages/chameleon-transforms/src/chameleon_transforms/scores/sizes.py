"""Sizes of networks as scores: what any other score has to beat."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions

from chameleon_transforms.contract import Judged, NetworkScore


class Parameters(NetworkScore):
    """Weights of convolutions and products."""

    proportional = True

    def __init__(self, options: NoOptions) -> None:
        del options

    def score(self, network: Judged) -> float:
        return float(sum(one.numel() for one in network.parameters()))


class MultiplyAdds(NetworkScore):
    """Of all convolutions, for one sample; where it decides, all networks are accepted."""

    proportional = True

    def __init__(self, options: NoOptions) -> None:
        del options

    def score(self, network: Judged) -> float:
        return float(network.multiply_adds)
