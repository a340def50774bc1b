"""A process that runs cells on request: ``python -m chameleon_bench._cells.worker``.

The first request names the plugin registry and the worker's number. Each further request is a cell;
the process runs the cell and writes the result. Worker processes of all suites on the machine claim
different cores.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chameleon_system.api import AnswerStream, read_requests, usable_cores

_held: list[int] = []
"""File descriptors of the cores that this process has claimed; closing one gives its core back."""


def main() -> None:
    """Run cells until there are no more requests."""
    answers = AnswerStream()
    asked = read_requests()
    first = next(asked)
    sys.path[:] = first["sys_path"]
    if hasattr(os, "sched_setaffinity"):
        # Stages ask how many cores they may use; here it is one, and no two workers share it.
        cores = usable_cores()
        core = claim_core(cores)
        os.sched_setaffinity(0, {cores[first["number"] % len(cores)] if core is None else core})
    # NumPy and the learning libraries count the cores when they are imported.
    from chameleon_bench._cells.running import answering  # noqa: PLC0415

    for answer in answering(asked, first["registry"]):
        answers.send(answer)


def claim_core(cores: Sequence[int], folder: Path | None = None) -> int | None:
    """Claim a core for this process until it ends, so that no other worker uses the core.

    Returns:
        The first core that no other living process has claimed. None if all are claimed, or if
        claims cannot be written.
    """
    if folder is None:
        folder = Path(tempfile.gettempdir(), f"chameleon-cores-{os.getuid()}")
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for core in cores:
            claim = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(claim)
                continue
            _held.append(claim)
            return core
    return None


if __name__ == "__main__":
    main()
