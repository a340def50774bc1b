"""The names of the builtin networks. Imports no numerical library, to be fast."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class NetworkRecord:
    """The description of a builtin network.

    Attributes:
        factory: ``"module:function"`` of the function that makes the torch module.
        inputs: The shape of one sample. It is (channels, height, width) for images, and (sequence
            length,) for tokens.
        vocabulary: Number of token ids; 0 for images.
    """

    factory: str
    inputs: tuple[int, ...]
    vocabulary: int = 0

    @property
    def kind(self) -> str:
        """``image`` for floating-point images, or ``tokens`` for token ids."""
        return "tokens" if self.vocabulary else "image"


def _network(factory: str, *inputs: int, vocabulary: int = 0) -> NetworkRecord:
    path = f"chameleon_networks.importers.builtin.{factory}"
    return NetworkRecord(factory=path, inputs=inputs, vocabulary=vocabulary)


NETWORKS = {
    "alexnet": _network("plain:alexnet", 3, 224, 224),
    "vgg16": _network("plain:vgg16", 3, 224, 224),
    "resnet18": _network("resnet:resnet18", 3, 224, 224),
    "resnet50": _network("resnet:resnet50", 3, 224, 224),
    "mobilenet_v2": _network("mobilenet:mobilenet_v2", 3, 224, 224),
    "bert_base": _network("bert:bert_base", 128, vocabulary=30522),
    "alexnet_small": _network("plain:alexnet_small", 3, 64, 64),
    "vgg_small": _network("plain:vgg_small", 3, 32, 32),
    "resnet_small": _network("resnet:resnet_small", 3, 32, 32),
    "resnet_bottleneck_small": _network("resnet:resnet_bottleneck_small", 3, 32, 32),
    "mobilenet_small": _network("mobilenet:mobilenet_small", 3, 32, 32),
    "bert_small": _network("bert:bert_small", 16, vocabulary=128),
}
"""The builtin networks: those of the paper, three more common ones, and a small network of each
kind."""
