"""The public names of this package: the contracts of transforms and network scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_transforms._contract import NetworkScore, Transform
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
