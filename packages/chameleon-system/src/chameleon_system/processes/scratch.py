"""Makes temporary folders, and removes those that killed processes have left."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

from chameleon_system.processes.stamps import ProcessStamp

_PREFIX = "chameleon"


def make_scratch() -> Path:
    """Make a private temporary folder, named after this process.

    So a later process recognizes it as abandoned if this process is killed.
    """
    return Path(tempfile.mkdtemp(prefix=_prefix()))


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder as ``make_scratch`` does, which is removed with the returned object."""
    return tempfile.TemporaryDirectory(prefix=_prefix())


def _prefix() -> str:
    _remove_once()
    return f"{_PREFIX}-{ProcessStamp.of(os.getpid())}-"


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process is known to have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*-*-*-*-*"):
        stamp = ProcessStamp.parse(folder.name.removeprefix(f"{_PREFIX}-").rpartition("-")[0])
        try:
            owned = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
        except OSError:
            continue
        if owned and stamp is not None and stamp.dead:
            shutil.rmtree(folder, ignore_errors=True)


# Most programs make only a few folders, so the first one is the time to look for abandoned ones.
_remove_once = functools.cache(remove_abandoned)
