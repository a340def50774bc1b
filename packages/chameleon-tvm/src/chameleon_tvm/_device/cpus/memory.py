"""The memory bandwidth of this machine's CPU, stored in a file by ``chameleon cpu --measure``.

Estimates depend on it. A resumed run would not repeat its search if each run measured it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chameleon_system.api import this_processor, user_cache_folder, write_atomic


def rate_file() -> Path:
    """The file of measured memory bandwidths, in the user's cache folder."""
    return user_cache_folder() / "cpu.json"


def stored_memory_rate(mcpu: str, cores: int) -> float | None:
    """The measured memory bandwidth in bytes per cycle and core; None if it was not measured."""
    rate = _read().get(_key(mcpu, cores))
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def store_memory_rate(mcpu: str, cores: int, rate: float) -> Path:
    """Store the measured bandwidth, in bytes per cycle and core, and return the file's path.

    Raises:
        OSError: The file cannot be written.
    """
    file = rate_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {**_read(), _key(mcpu, cores): rate}
    return write_atomic(file, json.dumps(values, indent=1, sort_keys=True) + "\n")


def _read() -> dict[str, Any]:
    try:
        values = json.loads(rate_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _key(mcpu: str, cores: int) -> str:
    processor = this_processor()
    return f"{processor.name if processor else ''} ({mcpu}), {cores} cores"
