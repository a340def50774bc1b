"""The memory bandwidth of this machine's CPU, kept in a file after the user has measured it.

First guesses are ordered by the bandwidth. If each run measured the bandwidth, the order could
change from run to run, and a resumed run would not repeat its search. For this reason the user
measures the bandwidth once with ``chameleon cpu --measure``, and all later runs read the file.
Without the file, runs use a usual rate of the CPU's kind of core.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chameleon_system.api import this_processor, user_cache_folder, write_atomic


def kept_file() -> Path:
    """The file that keeps measured memory bandwidths, in the user's cache folder."""
    return user_cache_folder() / "cpu.json"


def kept_memory_rate(mcpu: str, cores: int) -> float | None:
    """The memory bandwidth that was measured for this machine's processor.

    Args:
        mcpu: LLVM's name of the processor.
        cores: Number of cores that read memory at the same time in the measurement.

    Returns:
        Bytes per cycle and core, or None if it was not measured.
    """
    rate = _read().get(_key(mcpu, cores))
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def keep_memory_rate(mcpu: str, cores: int, rate: float) -> Path:
    """Write the measured bandwidth of this processor to the file, replacing an earlier one.

    Args:
        mcpu: LLVM's name of the processor.
        cores: Number of cores that read memory at the same time in the measurement.
        rate: Bytes per cycle and core.

    Returns:
        Path of the file.

    Raises:
        OSError: The file cannot be written.
    """
    file = kept_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {**_read(), _key(mcpu, cores): rate}
    return write_atomic(file, json.dumps(values, indent=1, sort_keys=True) + "\n")


def _read() -> dict[str, Any]:
    try:
        values = json.loads(kept_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _key(mcpu: str, cores: int) -> str:
    processor = this_processor()
    return f"{processor.name if processor else ''} ({mcpu}), {cores} cores"
