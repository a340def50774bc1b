"""Machine instructions with which templates multiply, such as fused multiply-add or AMX.

Each class says what its instruction computes, how to emit it, and which CPU or GPU has it.
"""
