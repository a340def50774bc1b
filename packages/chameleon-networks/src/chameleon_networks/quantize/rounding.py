"""Whether numbers of float32 fit into a smaller floating type."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_tvm.types import StorageType
from numpy.typing import NDArray


def overflows(values: NDArray[Any], kind: StorageType) -> bool:
    """Whether a finite number becomes infinite in a type.

    Args:
        values: of float32.
        kind: a floating type.
    """
    # Rounding keeps the order of numbers, so that the ends tell of all.
    ends = np.array([values.min(initial=0.0), values.max(initial=0.0)], np.float32)
    if not np.isfinite(ends).all():
        finite = values[np.isfinite(values)]
        ends = np.array([finite.min(initial=0.0), finite.max(initial=0.0)], np.float32)
    return not bool(np.isfinite(kind.rounded(ends)).all())
