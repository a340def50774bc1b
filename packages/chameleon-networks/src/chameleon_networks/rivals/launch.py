"""Starts TVM's own tuner on a network in a separate process. Does not import TVM."""

from __future__ import annotations

import time
from pathlib import Path

from chameleon_system.processes.conversation import Message
from chameleon_tvm.rivals.launch import answer_of, tuning_limit

from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.requests import request_of


def tune_network_with_metaschedule(
    network: ImportedNetwork,
    folder: Path,
    *,
    target: str,
    threads: int,
    wall_seconds: float,
    batch_size: int = 64,
    layout: str = "NCHW",
    as_shipped: bool = False,
    seed: int = 0,
) -> Message:
    """Tune and compile a network with TVM's ``tune_relax`` in a separate process.

    Args:
        network: The imported network.
        folder: The folder for the compiled network, which has the form of a delivered one.
        target: The resolved target.
        threads: Number of threads that kernels run with, and of threads that may build kernels.
        wall_seconds: Limit in seconds since the start of the process, imports included. Tuning
            stops after the first batch that ends after this limit, but not before each task has
            built its first batch. Compilation follows.
        batch_size: Number of trials of one task per batch; 64 is MetaSchedule's default.
        layout: The layout of the whole graph, ``NCHW`` or ``NHWC``.
        as_shipped: Whether to run TVM unchanged. If False, its processes import faster, and its
            runner stays off the cores of TVM's other threads.
        seed: The seed of the search.

    Returns:
        A mapping with ``seconds`` (wall-clock, compilation included), ``trials``, ``failed``,
        ``tasks`` and ``history``. Each batch in ``history`` has ``seconds`` since the start,
        ``trials`` so far and ``best_seconds``. The latter is the sum of all tasks' best times in
        MetaSchedule's own timing, or None while a task has no time.
    """
    request = {
        **request_of(network),
        "folder": str(folder.absolute()),
        "target": target,
        "launched": time.time(),
        "threads": threads,
        "wall_seconds": wall_seconds,
        "batch_size": batch_size,
        "layout": layout,
        "as_shipped": as_shipped,
        "seed": seed,
    }
    limit = tuning_limit(wall_seconds)
    return answer_of("chameleon_networks.rivals.metaschedule", request, threads, limit)
