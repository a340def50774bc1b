"""Unique names of processes, which mark their temporary folders and their children.

A process id is not unique: the system uses it again after some time, and in another container it is
another process (pid_namespaces(7)).
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import attrs
import psutil

TOKEN = "CHAMELEON_WORKER"  # noqa: S105 - the name of an environment variable
"""Environment variable with the token that a child and all its descendants carry."""

_PREFIX = "chameleon"
"""The prefix of the names of temporary folders."""

_GONE = frozenset("ZX")
"""States of a process that has ended, but was not reaped."""

_children = itertools.count()
"""Numbers of this process's children, as a part of their tokens."""


@attrs.frozen
class ProcessStamp:
    """A unique name of a process.

    Attributes:
        pid: the process id, in the process's own namespace.
        started: the start time of the process: on Linux in clock ticks since the machine started,
            elsewhere in seconds since 1970.
        boot: the id of the machine's last start; empty if unknown.
        namespace: the id of the namespace of process ids; empty if there is none.
    """

    pid: int
    started: int
    boot: str
    namespace: str

    @classmethod
    def of(cls, pid: int) -> ProcessStamp:
        """Make the stamp of a running process."""
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(f"there is no process {pid}")
        return cls(pid, started, _boot(), _namespace())

    @classmethod
    def parse(cls, text: str) -> ProcessStamp | None:
        """Read a stamp from the output of ``str``; None if the text is no stamp."""
        parts = text.split("-")
        if len(parts) != 4 or not (parts[0].isdecimal() and parts[1].isdecimal()):  # noqa: PLR2004
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}-{self.boot}-{self.namespace}"

    @property
    def dead(self) -> bool:
        """Whether the process is known to have ended; False in another namespace or boot."""
        if (self.boot, self.namespace) != (_boot(), _namespace()):
            return False
        try:
            return _started(self.pid) != self.started
        except OSError:
            return False


def child_token() -> str:
    """A token that marks a child of this process: this process's stamp, and a number."""
    return f"{ProcessStamp.of(os.getpid())}:{next(_children)}"


def is_abandoned(token: str) -> bool:
    """Whether the process that made a token is known to have ended."""
    stamp = ProcessStamp.parse(token.partition(":")[0])
    return stamp is not None and stamp.dead


def _started(pid: int) -> int | None:
    """The start time of a process; None if there is no such process, or if it has ended."""
    if _boot():
        try:
            # The second field, the name, may contain spaces and parentheses (proc_pid_stat(5)).
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in _GONE else int(fields[19])
    try:
        return int(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.Error as error:
        raise PermissionError(str(error)) from error


@functools.cache
def _boot() -> str:
    """The id of the machine's last start, without hyphens, which separate the parts of a stamp."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return ""


def _namespace() -> str:
    """The number of this process's namespace of process ids, or an empty string."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))  # noqa: PTH115
    except OSError:
        return ""


def make_scratch_folder() -> Path:
    """Make a temporary folder that is named after this process.

    A later process recognizes it as abandoned if this process is killed.
    """
    return Path(tempfile.mkdtemp(prefix=_prefix()))


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder as from ``make_scratch_folder``, which is removed with the returned object."""
    return tempfile.TemporaryDirectory(prefix=_prefix())


def _prefix() -> str:
    _remove_abandoned_once()
    return f"{_PREFIX}-{ProcessStamp.of(os.getpid())}-"


def remove_abandoned_folders() -> None:
    """Remove this user's temporary folders whose process is known to have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*-*-*-*-*"):
        stamp = ProcessStamp.parse(folder.name.removeprefix(f"{_PREFIX}-").rpartition("-")[0])
        try:
            owned = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
        except OSError:
            continue
        if owned and stamp is not None and stamp.dead:
            shutil.rmtree(folder, ignore_errors=True)


# Most programs make only a few folders, so abandoned ones are removed before the first.
_remove_abandoned_once = functools.cache(remove_abandoned_folders)
