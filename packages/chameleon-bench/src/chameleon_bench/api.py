"""The public names of this package for other packages: statistics, and the parts of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_bench._pages.plots import Plot, logarithmic, points, titled
    from chameleon_bench._pages.rendering import Cell, Table, plain_page
    from chameleon_bench._statistics.estimates import estimate, shift_interval
    from chameleon_bench._statistics.margins import margin_of
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
