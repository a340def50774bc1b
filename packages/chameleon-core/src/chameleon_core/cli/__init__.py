"""The ``chameleon`` command."""


def main() -> None:
    """Entry point of the console script."""
