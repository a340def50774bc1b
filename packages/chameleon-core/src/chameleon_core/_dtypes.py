"""Name of the default dtype of a network's computation."""

from __future__ import annotations

FLOAT32 = "float32"
