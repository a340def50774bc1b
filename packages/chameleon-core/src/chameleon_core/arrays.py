"""Arrays that operators and networks take and give."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Arrays = list[NDArray[Any]]
