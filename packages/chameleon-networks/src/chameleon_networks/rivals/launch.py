"""Starting TVM's own tuner on a network in a process of its own; imports no TVM."""

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
    """Tune a network with TVM's ``tune_relax`` in a process of its own, and compile it.

    Args:
        network: as its framework has it.
        folder: where the compiled network goes, in the form of a delivered one.
        target: the resolved target.
        threads: that kernels run with and that it may build with.
        wall_seconds: it stops after the batch in which this much has passed since its process
            was started, imports included, and then compiles. The first of these moments comes
            when a batch of every task is built.
        batch_size: of each task at a time; 64 is MetaSchedule's own.
        layout: of the whole graph, ``NCHW`` or ``NHWC``.
        as_shipped: leave its avoidable import and its runner's core as they are.
        seed: of its search.

    Returns:
        ``seconds`` (wall-clock it took, compiling included), ``trials``, ``failed``, ``tasks`` and
        ``history``. A batch has the seconds since the start, its trials, and the best seconds of
        all tasks together by its own clock, or None.
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
