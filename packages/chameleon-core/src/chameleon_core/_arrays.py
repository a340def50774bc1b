"""The type of the NumPy arrays that operators and networks take as inputs and return."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Arrays = list[NDArray[Any]]
