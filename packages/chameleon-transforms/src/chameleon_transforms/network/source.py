"""The torch module that a pipeline names."""

from __future__ import annotations

import attrs
import torch
from chameleon_core.errors import ConfigError
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins.factory import load_factory
from chameleon_networks.importers.builtin.records import NETWORKS
from chameleon_networks.importers.builtin.weights import initialise
from chameleon_networks.importers.torch.training import evaluated
from chameleon_tvm.sources import named_object
from torch import Tensor, nn

_HINT = "Transforms are of networks: {builtin: resnet18}, or {torch: 'net.py:make'}."


@attrs.frozen(kw_only=True, eq=False)
class SourceNetwork:
    """A network before it is transformed.

    Attributes:
        module: with its weights.
        images: an example of its only input.
        trained: whether its weights are the user's.
    """

    module: nn.Module
    images: Tensor
    trained: bool


def network_of(model: StageSpec) -> SourceNetwork:
    """The network of a pipeline's section ``model``.

    Args:
        model: a frontend with its options.

    Raises:
        ConfigError: it is no network of torch's with one input, a batch of images.
    """
    name = model.name.rpartition(":")[2]
    if name == "builtin":
        record = NETWORKS[model.options.network]
        if record.kind != "image":
            raise ConfigError(f"{model.options.network} takes no images", hint=_HINT)
        made = load_factory(record.factory)()
        images = torch.zeros((model.options.batch, *record.inputs))
        return SourceNetwork(module=initialise(made), images=images, trained=False)
    if name != "torch" or model.options.source.endswith(".pt2"):
        raise ConfigError(f"the model {model.name!r} is no module of torch's", hint=_HINT)
    return user_network(model.options.source)


def user_network(source: str) -> SourceNetwork:
    """The network that a function returns, with example inputs.

    Args:
        source: ``path.py:function`` or ``package.module:function``.

    Raises:
        ConfigError: there is none, or it takes something else than one batch of images.
    """
    try:
        made = named_object(source, "frontend 'torch'")()
        module, inputs = made
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{source} gives no module and example inputs: {type(error).__name__}: {error}",
            hint="Return the torch module and a tuple of example inputs.",
        ) from error
    given = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    image = 4
    if len(given) != 1 or not isinstance(given[0], Tensor) or given[0].dim() != image:
        raise ConfigError(
            f"{source} takes something else than one batch of images",
            hint="Transforms are of networks with one input of shape (n, channels, rows, columns).",
        )
    return SourceNetwork(module=evaluated(module), images=given[0], trained=True)
