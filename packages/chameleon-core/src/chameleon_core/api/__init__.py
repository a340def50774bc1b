"""What programs and notebooks use; ``chameleon_core`` exports it lazily (docs/python.md)."""
