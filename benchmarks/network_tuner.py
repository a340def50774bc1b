"""Runs TVM's own tuner on a network, in a process that `network_metaschedule.py` starts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.unsupported_operator import empty_kernels
from chameleon_networks._evaluation.messages import network_from
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax, tvm
from chameleon_system._processes.conversation import Message
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._rivals.metaschedule import (
    UNLIMITED_TRIALS,
    Progress,
    ProgressCallback,
    builder_and_runner,
    main,
)
from tvm.s_tir import meta_schedule as ms


def tune(request: Message, scratch: str) -> Message:
    """Run ``tune_relax`` as a request says, compile the network and write its folder.

    ``tune_relax`` gets the same prepared network as Chameleon's tuner: batch normalization is
    folded into convolutions, and constants are computed.

    Args:
        request: of `network_metaschedule.tuned_by_metaschedule`.
        scratch: the working directory of ``tune_relax``.
    """
    relax_integration = ms.relax_integration
    target, threads = tvm_target(request["target"]), int(request["threads"])
    adapted = not request["as_shipped"]
    if adapted:
        load_tensor_intrinsics()
    module = prepare_module(network_from(request).imported, request["layout"])
    fused = _fused(module, target)
    weights = [float(task.weight) for task in relax_integration.extract_tasks(fused, target)]
    progress = Progress(
        started=float(request["launched"]),
        wall_seconds=float(request["wall_seconds"]),
        weights=weights,
    )
    database = ms.database.MemoryDatabase()
    try:
        relax_integration.tune_relax(
            mod=fused,
            params={},
            target=target,
            work_dir=scratch,
            max_trials_global=UNLIMITED_TRIALS,
            num_trials_per_iter=int(request["batch_size"]),
            **builder_and_runner(threads, adapted=adapted),
            database=database,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ProgressCallback(progress)],
            seed=int(request["seed"]) + 1,
        )
    except Exception:  # TVM's FFI turns the callback's exception into one of its own.
        if not progress.expired:
            raise
    executable = relax_integration.compile_relax(database, module, target, params=None)
    kernels = empty_kernels(request["target"])
    manifest = manifest_of(module, (), kernels, request["target"], threads)
    write_artifact(Path(request["folder"]), executable, manifest)
    return {
        "seconds": time.time() - progress.started,
        "trials": progress.trials,
        "failed": progress.failed,
        "tasks": len(weights),
        "history": progress.history,
    }


def _fused(module: Any, target: Any) -> Any:
    """The network as fused TensorIR functions, made by the same passes that ``compile_relax`` runs.

    Tuning records apply only to functions that equal those that were tuned.
    """
    passes = relax.transform
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(
            [
                *relax.pipeline.library_dispatch_passes(target),
                passes.LegalizeOps(),
                passes.AnnotateTIROpPattern(),
                passes.FoldConstant(),
                passes.FuseOps(),
                passes.FuseTIR(),
            ]
        )(module)


if __name__ == "__main__":
    main(tune)
