"""The default memory limit of workers, and their environment variables."""

from __future__ import annotations

import os

import psutil

_MEMORY_SHARE = 0.5
_LEAST_MEMORY = 2 << 30
_KEPT_BYTES = 256 << 20
"""Bytes of freed memory that a worker's C library keeps, since new pages of the system are slow."""
_LARGE_BYTES = 32 << 20
"""Size of arrays whose memory goes back to the system at once; the largest of older glibc."""


def memory_limit(workers: int) -> int:
    """The memory limit of a worker in bytes, if the user set none."""
    total = int(psutil.virtual_memory().total)
    return max(_LEAST_MEMORY, int(total * _MEMORY_SHARE / max(1, workers)))


def worker_environment(*, threads: int, blas_threads: int, cores: list[int]) -> dict[str, str]:
    """The environment variables of a worker process.

    They are set before the process starts, because libraries read them when they load.
    """
    count = str(threads)
    places = ",".join(f"{{{core}}}" for core in cores[:threads])
    return {
        **os.environ,
        "TVM_NUM_THREADS": count,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": str(blas_threads),
        "OMP_PLACES": places,
        "OMP_PROC_BIND": "close",
        # Only glibc reads these two.
        "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
        "PYTHONUNBUFFERED": "1",
    }
