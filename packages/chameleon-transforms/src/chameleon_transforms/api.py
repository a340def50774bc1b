"""What authors of transforms and scores may import of this package: their contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_transforms._contract import NetworkScore, Transform
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
