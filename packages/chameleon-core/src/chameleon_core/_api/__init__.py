"""Functions for programs and notebooks; ``chameleon_core`` exports them lazily (docs/python.md)."""
