"""Names of processes that no other process has, and tokens that mark what a child starts.

A process id alone names nothing for long. It is used again, means another process in another
container (pid_namespaces(7)), and yet another one after the machine was started anew.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path

import attrs
import psutil

TOKEN = "CHAMELEON_WORKER"  # noqa: S105 - the name of an environment variable
"""Environment variable that a child and all it starts carry."""

_GONE = frozenset("ZX")
"""States of a process that has ended and that nobody has waited for."""

_children = itertools.count()
"""Unique in this process: part of a child's token."""


@attrs.frozen
class ProcessStamp:
    """A name for a process.

    Attributes:
        pid: its process id, in its own namespace.
        started: when it was started: on Linux in clock ticks since the machine was, elsewhere in
            seconds since 1970.
        boot: which start of which machine that was; empty if it cannot be told.
        namespace: the process ids' namespace; empty if there are none.
    """

    pid: int
    started: int
    boot: str
    namespace: str

    @classmethod
    def of(cls, pid: int) -> ProcessStamp:
        """The stamp of a process that is visible here.

        Raises:
            ProcessLookupError: there is no such process.
        """
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(f"there is no process {pid}")
        return cls(pid, started, _boot(), _namespace())

    @classmethod
    def parse(cls, text: str) -> ProcessStamp | None:
        """The stamp that ``str`` wrote; None if it is none, such as one of an older version."""
        parts = text.split("-")
        if len(parts) != 4 or not (parts[0].isdigit() and parts[1].isdigit()):  # noqa: PLR2004
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}-{self.boot}-{self.namespace}"

    @property
    def dead(self) -> bool:
        """Whether the process is known to have ended.

        Nothing is known of one of another namespace or another boot. That may be the namespace of
        another container with the same temporary folder, or the boot of another machine.
        """
        if (self.boot, self.namespace) != (_boot(), _namespace()):
            return False
        try:
            return _started(self.pid) != self.started
        except OSError:
            return False


def child_token() -> str:
    """A new token for a child of this process: its parent's stamp, and a number."""
    return f"{ProcessStamp.of(os.getpid())}:{next(_children)}"


def abandoned(token: str) -> bool:
    """Whether the parent that made a token is known to have ended."""
    stamp = ProcessStamp.parse(token.partition(":")[0])
    return stamp is not None and stamp.dead


def _started(pid: int) -> int | None:
    """When a process was started; None if there is none of this id, or only its remains."""
    if _boot():
        try:
            # The name, which comes second, may hold spaces and parentheses (proc_pid_stat(5)).
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
    """The machine's start, without the separators of a stamp."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return ""


def _namespace() -> str:
    """The number of this process's namespace of process ids."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))  # noqa: PTH115
    except OSError:
        return ""
