"""The default memory limit of workers, and their environment variables."""

from __future__ import annotations

import os

import psutil

_MEMORY_SHARE = 0.5
_LEAST_MEMORY = 2 << 30
_KEPT_BYTES = 256 << 20
"""Bytes of freed memory that a worker's C library keeps. Each kernel has new arrays and copies of
its weights, and the first use of a page that comes from the system takes long."""
_LARGE_BYTES = 32 << 20
"""Size of arrays whose memory goes back to the system at once. Older glibc allows no larger one."""


def memory_limit(workers: int) -> int:
    """The memory limit of a worker in bytes, if the user set none.

    It is half of the machine's memory divided by the number of workers, but at least 2 GiB, which a
    compiler needs.

    Args:
        workers: The number of workers.
    """
    total = int(psutil.virtual_memory().total)
    return max(_LEAST_MEMORY, int(total * _MEMORY_SHARE / max(1, workers)))


def worker_environment(*, threads: int, blas_threads: int, cores: list[int]) -> dict[str, str]:
    """The environment variables of a worker process.

    They are set before the process starts, because libraries read them when they load. They bind
    OpenMP's threads to the first cores, as TVM binds its own threads.

    Args:
        threads: The number of threads that a kernel runs with.
        blas_threads: The number of threads of OpenBLAS, with which NumPy computes references. It
            must be 1 if the process computes a reference. More threads would spin for a while after
            it, on cores where a kernel may be timed next.
        cores: The usable cores; kernels run on the first ``threads`` of them.
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
