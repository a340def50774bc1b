"""The builtin networks, and options of frontends. Imports no numerical library, to be fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from attrs import validators
from chameleon_core.plugin_api import FLOAT32, ConfigError, option
from chameleon_tvm.api import BFLOAT16, FLOAT16, REDUCED, display_name

from chameleon_networks._shapes import Buckets, check_shapes

PRECISIONS = tuple(sorted({display_name(name) for name in REDUCED}))
"""Dtypes other than float32 that a network may be computed in, if the target has them."""

AUTO = "auto"
"""The option to choose the layout by measurement."""

DEFAULT = "NHWC"
"""The layout if nothing is measured: channels last, also with one or three spatial axes."""


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
    path = f"chameleon_networks._importers.builtin.{factory}"
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


def _check_levels(_: object, __: object, levels: Sequence[str]) -> None:
    if len(set(levels)) < len(levels):
        raise ConfigError("a level is in 'levels' twice", hint="Remove one.")


@attrs.frozen(kw_only=True)
class NetworkOptions:
    """Options that all frontends for networks have."""

    layout: str = option(
        AUTO,
        "layout of the whole graph: NHWC, NCHW, or auto, which measures a few "
        "convolutions in both; weights are packed anyway",
        validators.in_((AUTO, DEFAULT, "NCHW")),
    )
    compare: bool = option(
        True, "time the compiled network against frameworks on this machine", binds=False
    )
    check: bool = option(
        True, "before tuning, compile the network and compare its outputs with its framework's"
    )
    in_place: bool = option(
        False,
        "time kernels that were nearly as fast as the winners inside the network, and "
        "take the fastest there",
        binds=False,
    )
    vectors: bool = option(
        True,
        "if kernels use AMX's tiles, deliver kernels with vectors as well, for systems without AMX",
        binds=False,
    )
    levels: tuple[str, ...] = option(
        (),
        "further CPUs, by LLVM's names such as x86-64-v3, for which the folder holds kernels that "
        "are not tuned; loading chooses",
        _check_levels,
        binds=False,
    )
    shapes: dict[str, tuple[int | Buckets, ...]] = option(
        dict,
        "shapes of inputs by name, if the file leaves them open or to replace the example's. "
        "An extent {buckets: [64, 128]} makes a network for each; with `pad: 0`, inputs "
        "between them are padded with 0. {range: [1, 512]} chooses buckets itself",
        lambda _, __, value: check_shapes(value),
    )

    @property
    def title(self) -> str:
        """The name of the network for people: its source, without the folder."""
        return Path(str(getattr(self, "source", ""))).name


@attrs.frozen(kw_only=True)
class BuiltinOptions(NetworkOptions):
    """Options of the ``builtin`` frontend."""

    network: str = option(
        attrs.NOTHING, f"one of {', '.join(NETWORKS)}", validators.in_(tuple(NETWORKS))
    )
    batch: int = option(1, "samples per inference", at_least=1)
    dtype: str = option(
        FLOAT32,
        f"dtype of weights and images: {FLOAT32}, {FLOAT16} or {BFLOAT16}",
        validators.in_((FLOAT32, FLOAT16, BFLOAT16)),
    )

    @property
    def title(self) -> str:
        return self.network


@attrs.frozen(kw_only=True)
class TorchOptions(NetworkOptions):
    """Options of the ``torch`` frontend."""

    source: str = option(
        attrs.NOTHING,
        "'path.py:function' or 'package.module:function' that returns a module and its example "
        "inputs, or a program saved by torch.export (.pt2)",
        source=True,
    )

    def __attrs_post_init__(self) -> None:
        _, _, function = self.source.rpartition(":")
        if not self.source.endswith(".pt2") and not function.isidentifier():
            raise ConfigError(
                f"{self.source!r} names neither a function nor a saved program",
                hint="Write 'path.py:function', 'package.module:function' or 'file.pt2'.",
            )


@attrs.frozen(kw_only=True)
class OnnxOptions(NetworkOptions):
    """Options of the ``onnx`` frontend."""

    source: str = option(attrs.NOTHING, "an ONNX file; formerly `file`", path=True, former="file")
