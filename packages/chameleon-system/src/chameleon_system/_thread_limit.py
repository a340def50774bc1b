"""The number of threads that this process may use, from its cores and its CPU quota.

If threads exceed the quota, the kernel stops all of them for the rest of a period, usually a tenth
of a second. The page docs/measuring.md has times.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")

_QUOTA = re.compile(r"\s*([1-9]\d{0,14})\s+([1-9]\d{0,14})\s*", re.ASCII)
"""Quota and period in microseconds. Other texts, such as ``max`` and -1, mean no quota."""


def allowed_cores() -> list[int]:
    """Ids of the cores that this process may run on, even if its CPU quota allows fewer."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_threads(root: Path = ROOT) -> int:
    """The number of threads that may compute at once in this process, at least 1.

    A library in another language gives the same number by this rule:

    1. Count the cores of the process's affinity.
    2. Find each mount of ``cgroup2``, and of ``cgroup`` with the option ``cpu``, in
       ``/proc/self/mountinfo``, and the process's path in that hierarchy in ``/proc/self/cgroup``.
       If this path is below the root of the mount, take its folder below the mount point. If the
       path is elsewhere or contains ``..``, take the mount point itself.
    3. Read quota and period in the folder from step 2 and in each folder above, up to the mount
       point: ``cpu.max``, or ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``.
    4. Two positive integers of at most 15 digits allow ``quota / period`` threads, rounded down but
       at least one; anything else allows any number.
    5. The smallest number counts.

    """
    quota = cpu_quota(root)
    cores = len(allowed_cores())
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_quota(root: Path = ROOT) -> float | None:
    """The number of cores whose CPU time the cgroups of this process allow; None for no limit."""
    matches = (_QUOTA.fullmatch(text) for folder in _folders(root) for text in _texts(folder))
    return min((int(match[1]) / int(match[2]) for match in matches if match), default=None)


def _texts(folder: Path) -> tuple[str, str]:
    """Quota and period of a cgroup, as cgroup version 2 and version 1 write them."""
    v1 = (_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return _read(folder / "cpu.max"), " ".join(v1)


def _folders(root: Path) -> Iterator[Path]:
    """The folders of this process's cgroups, and of all cgroups above, as far as visible."""
    paths = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        for name in controllers.split(","):
            paths[name] = path
    for line in _read(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mount_fields, type_fields = before.split(), after.split()
        if len(mount_fields) <= 4 or len(type_fields) <= 2:  # noqa: PLR2004 - an incomplete line
            continue
        v1 = type_fields[0] == "cgroup" and "cpu" in type_fields[2].split(",")
        if not v1 and type_fields[0] != "cgroup2":
            continue
        mount = root / _unescaped(mount_fields[4]).lstrip("/")
        below = _below(_unescaped(mount_fields[3]), paths.get("cpu" if v1 else "", "/"))
        for depth in range(len(below) + 1):
            yield mount.joinpath(*below[:depth])


def _below(root: str, path: str) -> tuple[str, ...]:
    """The parts of a cgroup's path below the root of a mount; none if it lies elsewhere."""
    absolute, mount_root = PurePosixPath(path), PurePosixPath(root)
    parts = absolute.relative_to(mount_root).parts if absolute.is_relative_to(mount_root) else ()
    return () if ".." in parts else parts


def _unescaped(text: str) -> str:
    """A path of ``mountinfo``, in which spaces and similar characters are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):  # a path with a null byte raises ValueError
        return ""
