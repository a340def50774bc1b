"""Numbers of float32 rounded to smaller types, as conversions by hardware do."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_tvm.operators.element_types import BFLOAT16
from numpy.typing import NDArray


def rounded(values: NDArray[Any], kind: str) -> NDArray[np.float32]:
    """The nearest numbers of a type, of two the even one, in float32.

    Args:
        values: finite numbers of float32.
        kind: ``bfloat16`` or ``float16``.
    """
    if kind != BFLOAT16:
        with np.errstate(over="ignore"):
            return values.astype(kind).astype(np.float32)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Half of the last place that stays is added, less one unit where that place is even.
    up = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (up & np.uint32(0xFFFF0000)).view(np.float32)


def overflows(values: NDArray[Any], kind: str) -> bool:
    """Whether a finite number becomes infinite in a type.

    Args:
        values: of float32.
        kind: as above.
    """
    # Rounding keeps the order of numbers, so that the ends tell of all.
    ends = np.array([values.min(initial=0.0), values.max(initial=0.0)], np.float32)
    if not np.isfinite(ends).all():
        finite = values[np.isfinite(values)]
        ends = np.array([finite.min(initial=0.0), finite.max(initial=0.0)], np.float32)
    return not bool(np.isfinite(rounded(ends, kind)).all())
