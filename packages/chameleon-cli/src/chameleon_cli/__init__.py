"""The ``chameleon`` command."""

from chameleon_cli._main import main

__all__ = ["main"]
