"""``chameleon dataset``: data sets of measured candidates."""

from __future__ import annotations

import click


@click.group("dataset")
def command() -> None:
    """Collect measurements of many tasks, or import, merge and check them."""
