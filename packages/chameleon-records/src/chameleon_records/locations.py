"""Where the user's own records are."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "records.sqlite"


def own_location() -> Path:
    """The user's database: ``$XDG_DATA_HOME/chameleon/records.sqlite``.

    Without the variable it is below ``~/.local/share``, as the XDG Base Directory Specification
    has it, which wants relative paths ignored.
    """
    given = os.environ.get("XDG_DATA_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "share"
    return base / "chameleon" / NAME


__all__ = ["own_location"]
