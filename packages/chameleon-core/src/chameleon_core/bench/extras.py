"""The libraries that only reports need, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

from chameleon_core.errors import ConfigError

INSTALL = "pip install 'chameleon-tuner-core[bench]'"
"""What brings them."""


def imported(module: str, wanted_for: str) -> Any:
    """A module of the extra ``bench``.

    Raises:
        ConfigError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ConfigError(
            f"{wanted_for} needs {package}, which is not installed", hint=f"install it: {INSTALL}"
        ) from error


def check() -> None:
    """See that everything a report needs is there, before hours are spent on its cells.

    Raises:
        ConfigError: something is missing; says what to install.
    """
    imported("scipy.stats", "the paired test")
    imported("matplotlib.figure", "the plots")
