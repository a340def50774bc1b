"""A core for every worker process, of this suite or of another that runs beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

_held: list[int] = []
"""Descriptors of this process's claims: closing one would give its core back."""


def claim_core(cores: Sequence[int], folder: Path | None = None) -> int | None:
    """Claim a core until this process ends, however it ends.

    Args:
        cores: ids of the cores to choose from.
        folder: where claims are kept; one of the user's own where None.

    Returns:
        The first core that no living process has claimed, or None where all are claimed or
        claims cannot be kept.
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
