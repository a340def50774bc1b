"""A replacement for ``np.ascontiguousarray`` that keeps the class of an array.

Chameleon uses a subclass of NumPy's arrays that records the operations on an array.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order without gaps; the same object if it has this form already.

    ``np.ascontiguousarray`` would turn an array of a subclass into a plain array. Chameleon uses
    such a subclass to record how a delivered operator rearranges its inputs.
    """
    return array if array.flags.c_contiguous else array.copy()
