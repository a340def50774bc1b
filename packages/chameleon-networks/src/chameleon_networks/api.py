"""The public names of this package: delivered networks, sources, and backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_networks._artifact.load import load
    from chameleon_networks._backends import compile, onnx_networks
    from chameleon_networks._importers.options import NETWORKS, NetworkOptions
    from chameleon_networks._importers.torch.inference import evaluated, initialise
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
