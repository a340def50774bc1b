"""Machine instructions with which templates multiply, such as fused multiply-add or AMX."""
