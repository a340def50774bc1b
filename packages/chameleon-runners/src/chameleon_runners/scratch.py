"""A runner's temporary folder, and clearing away what killed runners left."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

_PREFIX = "chameleon-runner"


def process_stamp(pid: int) -> str:
    """A name for a process that a later process of the same id does not share.

    Raises:
        psutil.Error: there is no such process.
    """
    return f"{pid}-{int(psutil.Process(pid).create_time())}"


def stamp_alive(stamp: str) -> bool:
    """Whether the process that ``process_stamp`` named still runs."""
    pid, _, started = stamp.partition("-")
    if not (pid.isdigit() and started.isdigit()):
        return True
    try:
        created = int(psutil.Process(int(pid)).create_time())
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
    # The boot time it is counted from is rounded differently from one reading to the next.
    return abs(created - int(started)) <= 1


def make_scratch() -> Path:
    """A new private folder in the system's temporary folder, named after this process."""
    stamp = process_stamp(os.getpid())
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{stamp}-"))


def remove_abandoned() -> None:
    """Remove the folders of this user's runners whose process is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*-*-*"):
        stamp = "-".join(folder.name.removeprefix(f"{_PREFIX}-").split("-")[:2])
        try:
            owned = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
        except OSError:
            continue
        if owned and not stamp_alive(stamp):
            shutil.rmtree(folder, ignore_errors=True)
