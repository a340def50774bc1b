"""The ``chameleon`` command."""

from chameleon_cli.main import main

__all__ = ["main"]
