"""Measure the peak of fused multiply-adds of this machine's CPU, in GFLOP/s.

Independent chains of ``x = x * a + b`` that live in registers, one vector register each, on every
thread at once: no kernel can do more. `python benchmarks/peak.py --threads 2` prints the number.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from chameleon_system.cores import usable_cores

ITERATIONS = 20_000


def measure(threads: int, repeats: int = 15) -> float:
    """Peak of ``threads`` threads in GFLOP/s: the best of ``repeats`` runs.

    To be called in a fresh process: TVM reads its number of threads once.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import numpy as np  # noqa: PLC0415 - after the environment is set
    import tvm  # noqa: PLC0415
    from chameleon_core.plugins.records import NoOptions  # noqa: PLC0415
    from chameleon_tvm.device.targets import TVMTargets, target_info, tvm_target  # noqa: PLC0415
    from tvm.script import tirx as T  # noqa: N812, PLC0415

    target = TVMTargets(NoOptions()).resolve("native")
    info = target_info(target)
    lanes, chains = info.lanes("float32"), info.vector_registers - 4

    @T.prim_func
    def main(  # noqa: ANN202 - TVMScript
        x: T.Buffer((2, lanes), "float32"), out: T.Buffer((threads, chains, lanes), "float32")
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for thread in T.parallel(threads):
            state = T.alloc_buffer((chains, lanes), "float32", scope="local")
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    state[chain, lane] = out[thread, chain, lane]
            for _ in range(ITERATIONS):
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        state[chain, lane] = state[chain, lane] * x[0, lane] + x[1, lane]
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    out[thread, chain, lane] = state[chain, lane]

    kernel = tvm.compile(tvm.IRModule({"main": main}), target=tvm_target(target)).jit()
    factors = np.stack([np.full(lanes, 0.5), np.ones(lanes)]).astype("float32")
    arguments = [
        tvm.runtime.tensor(factors),
        tvm.runtime.tensor(np.zeros((threads, chains, lanes), "float32")),
    ]
    kernel["main"](*arguments)
    # TVM binds its workers when its pool starts, to every core but the first.
    os.sched_setaffinity(0, {usable_cores()[0]})
    timer = kernel.time_evaluator("main", tvm.cpu(), number=20, repeat=repeats)
    seconds = min(timer(*arguments).results)
    return 2 * threads * chains * lanes * ITERATIONS / seconds / 1e9


def main() -> None:
    """Print the peak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(usable_cores()))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    sys.modules["torch"] = None  # type: ignore[assignment] # halves the start-up of TVM
    gflops = measure(arguments.threads)
    if arguments.json:
        print(json.dumps({"threads": arguments.threads, "fma_peak_gflops": gflops}))
    else:
        print(f"{gflops:.1f} GFLOP/s with {arguments.threads} threads")


if __name__ == "__main__":
    main()
