"""The names of the built-in networks; cheap to import."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class NetworkRecord:
    """A built-in network.

    Attributes:
        factory: ``"module:function"`` that makes the torch module.
        inputs: shape of one sample; what it means is the kind's.
        kind: ``image`` (channels, height, width; floats) or ``tokens`` (sequence length; ids).
        vocabulary: for tokens, how many ids there are.
    """

    factory: str
    inputs: tuple[int, ...]
    kind: str = "image"
    vocabulary: int = 0


def _image(factory: str, size: int) -> NetworkRecord:
    return NetworkRecord(
        factory=f"chameleon_networks.importers.builtin.{factory}", inputs=(3, size, size)
    )


def _tokens(factory: str, length: int, vocabulary: int) -> NetworkRecord:
    return NetworkRecord(
        factory=f"chameleon_networks.importers.builtin.{factory}",
        inputs=(length,),
        kind="tokens",
        vocabulary=vocabulary,
    )


NETWORKS = {
    "alexnet": _image("alexnet:alexnet", 224),
    "vgg16": _image("vgg:vgg16", 224),
    "resnet18": _image("resnet:resnet18", 224),
    "resnet50": _image("resnet:resnet50", 224),
    "mobilenet_v2": _image("mobilenet:mobilenet_v2", 224),
    "bert_base": _tokens("bert:bert_base", 128, 30522),
    "alexnet_small": _image("alexnet:alexnet_small", 64),
    "vgg_small": _image("vgg:vgg_small", 32),
    "resnet_small": _image("resnet:resnet_small", 32),
    "resnet_bottleneck_small": _image("resnet:resnet_bottleneck_small", 32),
    "mobilenet_small": _image("mobilenet:mobilenet_small", 32),
    "bert_small": _tokens("bert:bert_small", 16, 128),
}
"""The networks of the paper, three more that people deploy, and a small one of each kind."""
