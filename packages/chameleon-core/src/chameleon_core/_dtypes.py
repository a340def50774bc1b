"""Names of the default dtype of a network's computation, and of a framework's own choice."""

from __future__ import annotations

FLOAT32 = "float32"

AS_IT_COMES = "as-it-comes"
"""The precision that a framework itself chooses if it is asked for none."""
