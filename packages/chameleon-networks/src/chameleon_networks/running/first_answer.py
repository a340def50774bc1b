"""How soon a delivered network gives its first answer, and the memory and disk that it takes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import structlog
from chameleon_core.network_result import Footprint

log = structlog.get_logger()

STARTS = 3
"""Processes that are started; the median counts."""

_SECONDS = 300.0
"""A process may take so long."""

_USER = """
import json, re, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from load import load
network = load()
inputs = json.load(open(sys.argv[1] + "/manifest.json"))["inputs"]
network(*[np.zeros(one["shape"], one["dtype"]) for one in inputs])
print(time.time())
print(re.search(r"^Pss:\\s+(\\d+)", open("/proc/self/smaps_rollup").read(), re.M)[1])
"""
"""A user's program: zeros in, one answer out."""


def first_answer(folder: Path) -> Footprint:
    """What a new process takes to its first answer with a delivered network.

    The files are in memory already, as after a first start. The process has the variables of
    whoever called Chameleon.

    Args:
        folder: the network's, of one shape.

    Returns:
        Its memory has its share of what it has in common with others. Nothing is known if it fails.
    """
    command = [sys.executable, "-c", _USER, str(folder)]
    seconds, memory = [], []
    for _ in range(STARTS):
        started = time.time()
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if process.returncode:
            log.warning("first_answer_not_timed", problem=process.stderr[-400:])
            return Footprint()
        answered, kilobytes = process.stdout.split()
        seconds.append(float(answered) - started)
        memory.append(1024 * int(kilobytes))
    return Footprint(
        first_answer_seconds=statistics.median(seconds),
        memory_bytes=int(statistics.median(memory)),
        disk_bytes=disk_bytes(folder),
    )


def disk_bytes(folder: Path) -> int:
    """Bytes of the files that loading a network needs."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".tar")
    return sum(file.stat().st_size for file in files if "__pycache__" not in file.parts)
