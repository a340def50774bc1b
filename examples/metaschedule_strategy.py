"""Chameleon's search inside a script written for TVM's own tuner.

``python examples/metaschedule_strategy.py`` tunes a dense layer with ``ms.tune_tir`` in about a
minute. Two lines differ from a script for MetaSchedule alone: ``strategy=``, and ``builder=``,
which spares each of TVM's builder processes an import of 20 seconds. The records are in the work
folder, in MetaSchedule's own database; run it again and the search continues from them.
"""

from __future__ import annotations

import sys

import numpy as np
import tvm
from chameleon_core.plugin_api import NoOptions
from chameleon_tvm.api import ChameleonStrategy, TVMTargets, load_tensor_intrinsics, tvm_target
from tvm import te
from tvm.s_tir import meta_schedule as ms

ROWS, FEATURES, UNITS = 128, 256, 512


def dense() -> tvm.tirx.PrimFunc:
    """(ROWS, FEATURES) times (FEATURES, UNITS)."""
    data = te.placeholder((ROWS, FEATURES), "float32", name="data")
    weights = te.placeholder((FEATURES, UNITS), "float32", name="weights")
    k = te.reduce_axis((0, FEATURES), name="k")
    product = te.compute(
        (ROWS, UNITS), lambda m, n: te.sum(data[m, k] * weights[k, n], axis=k), name="product"
    )
    return te.create_prim_func([data, weights, product])


def main(work_dir: str = "runs/metaschedule_strategy") -> None:
    """Tune, build the best schedule, check and time it."""
    function = dense()
    # LLVM's own guess of the CPU may have instructions that a virtual machine lacks.
    target = tvm_target(TVMTargets(NoOptions()).resolve("native"))
    database = ms.tune_tir(
        mod=function,
        target=target,
        work_dir=work_dir,
        max_trials_global=64,
        num_trials_per_iter=16,
        strategy=ChameleonStrategy(seed=0),
        builder=ms.builder.LocalBuilder(max_workers=2, initializer=load_tensor_intrinsics),
        num_tuning_cores=2,
        seed=1,
    )
    best = ms.tir_integration.compile_tir(database, function, target)
    built = tvm.compile(best.mod, target=target).jit()
    rng = np.random.default_rng(0)
    data = rng.standard_normal((ROWS, FEATURES), "float32")
    weights = rng.standard_normal((FEATURES, UNITS), "float32")
    args = [tvm.runtime.tensor(array) for array in (data, weights, np.zeros((ROWS, UNITS), "f4"))]
    built["main"](*args)
    np.testing.assert_allclose(args[-1].numpy(), data @ weights, rtol=1e-4, atol=1e-3)
    seconds = built.time_evaluator("main", tvm.cpu(), number=50, repeat=5)(*args).median
    flop = 2 * ROWS * FEATURES * UNITS
    print(  # noqa: T201 - the result
        f"{len(database)} records, best {seconds * 1e6:.0f} us, {flop / seconds / 1e9:.0f} GFLOP/s"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
