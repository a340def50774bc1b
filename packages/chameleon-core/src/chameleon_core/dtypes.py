"""Names of the types that networks are computed in."""

from __future__ import annotations

FLOAT32, INT8, BFLOAT16, FLOAT16 = "float32", "int8", "bfloat16", "float16"
"""Float32 is that of all networks where nothing names another one."""

AS_IT_COMES = "as-it-comes"
"""What is asked of something that takes the type it likes."""
