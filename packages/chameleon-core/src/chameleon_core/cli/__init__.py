"""The ``chameleon`` command."""

from chameleon_core.cli.main import main

__all__ = ["main"]
