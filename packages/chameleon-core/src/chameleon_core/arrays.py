"""The type of the arrays that operators and networks take and return."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Arrays = list[NDArray[Any]]
