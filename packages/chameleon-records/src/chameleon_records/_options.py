"""Options of the database ``files``. The module imports no large library."""

from __future__ import annotations

import attrs
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class FilesOptions:
    """Options of the record database ``files``."""

    location: str | None = option(
        None,
        "a SQLite file, a folder, a file written by `chameleon records export`, or an "
        "http(s) URL; the user's own by default",
        path=True,
    )
