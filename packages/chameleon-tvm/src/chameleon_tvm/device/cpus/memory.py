"""The memory bandwidth of this machine's CPU, kept once it was measured.

A run depends on it: first guesses are ordered by it. So nothing measures it on the way; the user
does, once, and the file is read ever after. Without one, the usual rate of the core counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chameleon_system.files import user_cache_folder, write_whole
from chameleon_system.processor import this_processor


def kept_file() -> Path:
    """The file of measured rates, in the user's cache folder."""
    return user_cache_folder() / "cpu.json"


def kept_memory_rate(mcpu: str, cores: int) -> float | None:
    """The rate that was measured for this processor.

    Args:
        mcpu: LLVM's name of it.
        cores: that were at work.

    Returns:
        Bytes per cycle and core, or None if it was not measured.
    """
    rate = _read().get(_key(mcpu, cores))
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def keep_memory_rate(mcpu: str, cores: int, rate: float) -> Path:
    """Keep a rate for this processor in place of an earlier one.

    Args:
        mcpu: LLVM's name of it.
        cores: that were at work.
        rate: bytes per cycle and core.

    Returns:
        The file it is in.

    Raises:
        OSError: it cannot be written.
    """
    file = kept_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {**_read(), _key(mcpu, cores): rate}
    return write_whole(file, json.dumps(values, indent=1, sort_keys=True) + "\n")


def _read() -> dict[str, Any]:
    try:
        values = json.loads(kept_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _key(mcpu: str, cores: int) -> str:
    processor = this_processor()
    return f"{processor.name if processor else ''} ({mcpu}), {cores} cores"
