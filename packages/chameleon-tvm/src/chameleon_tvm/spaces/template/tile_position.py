"""Where a tile is, while its code is written."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.spaces.template.emit import Buffer, Expr


@attrs.frozen(kw_only=True, eq=False)
class TilePosition:
    """Where a tile of outputs is: image, group, block of channels, first row and column.

    Attributes:
        outer: where it is along each outer axis.
        sums: the registers its sums are in, in order of rows, columns and vectors of channels.
        valid: which taps of which columns are inside the input, shape (columns, kernel width).
    """

    n: Expr
    outer: tuple[Expr, ...]
    group: Expr
    block: Expr
    y: Expr
    x: Expr
    sums: tuple[Buffer, ...]
    valid: NDArray[np.bool_]
