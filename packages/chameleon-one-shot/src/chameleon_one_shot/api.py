"""The public names of this package for programs: readers of data sets and of predictors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_one_shot._dataset.format import read_dataset
    from chameleon_one_shot._predictor.header import read_header
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
