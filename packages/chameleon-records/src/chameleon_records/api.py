"""The public names of this package for programs: tables of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_records._tables.export import dataframe
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
