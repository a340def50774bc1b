"""Memory limits of workers, and the environment that sets their threads."""

from __future__ import annotations

import os

import psutil

_MEMORY_SHARE = 0.5
_LEAST_MEMORY = 2 << 30


def memory_limit(workers: int) -> int:
    """Bytes a worker may allocate if the user set no limit.

    Half the machine's memory shared among the workers, so that all of them together cannot bring it
    down. It is never so little that a compiler does not fit.
    """
    total = int(psutil.virtual_memory().total)
    return max(_LEAST_MEMORY, int(total * _MEMORY_SHARE / max(1, workers)))


def worker_environment(*, threads: int, blas_threads: int, cores: list[int]) -> dict[str, str]:
    """The environment of a worker.

    Thread counts are read by libraries when they load, so they are set before the process
    starts. OpenMP threads are bound to the first cores, as TVM binds its own.

    Args:
        threads: threads a kernel runs with.
        blas_threads: threads of OpenBLAS, which NumPy computes reference outputs with. They go
            on spinning for a while, on the cores that kernels are timed on a moment later.
        cores: usable cores; the first ``threads`` of them run kernels.
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
        "PYTHONUNBUFFERED": "1",
    }
