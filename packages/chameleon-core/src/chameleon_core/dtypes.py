"""The type that networks are computed in if nothing names another one."""

from __future__ import annotations

FLOAT32 = "float32"
