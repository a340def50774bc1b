"""A network tuned by Chameleon and by TVM's MetaSchedule in the same wall-clock.

`python benchmarks/network_metaschedule.py examples/resnet18.yaml --json OUT.json` runs the
pipeline, gives `ms.relax_integration.tune_relax` the wall-clock that this took (or `--seconds`),
verifies both compiled networks, and times them in turns. `--run FOLDER` takes a run that has
delivered already, and then needs `--seconds`, and `--trust-source` if its pipeline names code.

What makes it fair: both sides start from nothing, imports, preparation, tuning and compilation
included; both get the same network with batch normalisation folded, the same number of threads to
build and run with, pinned alike; the outputs of both are compared with the framework's, and both
are timed by one clock, each in a process of its own. In MetaSchedule's favour, its process may
finish its last batch and compiles after its time is up, and its 20-second import of tensor
intrinsics in every builder is mended (unless `--as-shipped`). It builds a batch of every task
before it learns anything or looks at the clock: its own 64 trials a batch would take minutes for
that, and `--batch` is 16. `--layout` is the layout of its graph.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core._run_files import RunFile
from chameleon_core._run_view import RunView
from chameleon_networks._commands.runs import network_of
from chameleon_networks._evaluation.latency import time_in_turns
from chameleon_networks._evaluation.messages import describe_network
from chameleon_networks._evaluation.processes import delivered_process, framework_process
from chameleon_networks._evaluation.verify import SAMPLES
from chameleon_networks._evaluation.verify import compare as compare_outputs
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_system._cores import usable_cores
from chameleon_system._processes.conversation import Message
from chameleon_tvm._rivals.launch import run_process, tuning_limit

OURS, THEIRS = "chameleon", "metaschedule"


def tuned(pipeline: Path, folder: Path) -> float:
    """Run a pipeline from nothing; its wall-clock in seconds, the process's start included."""
    words = ["run", str(pipeline), "-o", str(folder), "--fresh", "--json"]
    started = time.time()
    finished = subprocess.run(
        [sys.executable, "-m", "chameleon_cli", *words], check=False, stdout=subprocess.DEVNULL
    )
    if not (folder / RunFile.NETWORK).is_dir():  # 1 may mean that an operator has no measurement
        raise SystemExit(f"chameleon {' '.join(words)} ended with {finished.returncode}")
    return time.time() - started


def tuned_by_metaschedule(
    network: ImportedNetwork,
    folder: Path,
    *,
    target: str,
    threads: int,
    wall_seconds: float,
    batch_size: int,
    layout: str = "NCHW",
    as_shipped: bool = False,
    seed: int = 0,
) -> Message:
    """Tune and compile a network with TVM's ``tune_relax`` in a separate process.

    Args:
        network: the imported network.
        folder: for the compiled network, which has the form of a delivered one.
        target: resolved.
        threads: that kernels run with, and that may build kernels.
        wall_seconds: limit in seconds since the start of the process, imports included. Tuning
            stops after the first batch that ends after this limit, but not before each task has
            built its first batch. Compilation follows.
        batch_size: trials of one task per batch; 64 is MetaSchedule's default.
        layout: of the whole graph, ``NCHW`` or ``NHWC``.
        as_shipped: whether to run TVM unchanged. If False, its processes import faster, and its
            runner stays off the cores of TVM's other threads.
        seed: of the search.

    Returns:
        A mapping with ``seconds`` (wall-clock, compilation included), ``trials``, ``failed``,
        ``tasks`` and ``history``. Each batch in ``history`` has ``seconds`` since the start,
        ``trials`` so far and ``best_seconds``. The latter is the sum of all tasks' best times in
        MetaSchedule's own timing, or None while a task has no time.
    """
    request = {
        **describe_network(network),
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
    return run_process("network_tuner", request, threads, tuning_limit(wall_seconds))


def compare(run: Path, options: argparse.Namespace, ours: float | None) -> dict[str, Any]:
    """Tune the network of a run by MetaSchedule and time both.

    Args:
        run: the run's folder.
        options: of the command line.
        ours: wall-clock of the run in seconds, if it was measured.
    """
    with RunView(run) as view:
        # A pipeline that was just run had its code imported then.
        trust_source = options.trust_source or options.pipeline is not None
        pipeline = view.model_choice(trust_source=trust_source)
        network = network_of(pipeline, view).by_bucket[""].network
        target = view.target
    seconds = options.seconds or ours
    if seconds is None:
        raise SystemExit("--run needs --seconds")
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        theirs = Path(scratch, "network")
        answer = tuned_by_metaschedule(
            network,
            theirs,
            target=target,
            threads=options.threads,
            wall_seconds=seconds,
            batch_size=options.batch,
            layout=options.layout,
            as_shipped=options.as_shipped,
            seed=options.seed,
        )
        rng = np.random.default_rng(0)
        samples = [network.samples(rng) for _ in range(SAMPLES)]
        with framework_process(
            network, network.frameworks[0], threads=options.threads
        ) as reference:
            expected = [reference.outputs(inputs) for inputs in samples]
        folders = {OURS: run / RunFile.NETWORK, THEIRS: theirs}
        processes = [
            stack.enter_context(delivered_process(name, folder, threads=options.threads))
            for name, folder in folders.items()
        ]
        verdicts = {
            process.name: compare_outputs(process.outputs, samples, expected)
            for process in processes
        }
        for name, verdict in verdicts.items():
            if verdict.problem is not None:
                raise SystemExit(f"{name}'s network is wrong: {verdict.problem}")
        times = time_in_turns(processes, samples[0], threads=options.threads)
    medians = {name: statistics.median(found) if found else None for name, found in times.items()}
    own, their = medians[OURS], medians[THEIRS]
    return {
        "run": str(run),
        "threads": options.threads,
        "layout": options.layout,
        "batch_size": options.batch,
        "as_shipped": options.as_shipped,
        "seed": options.seed,
        OURS: {
            "wall_seconds": ours,
            "latency_seconds": own,
            "max_relative_error": verdicts[OURS].max_relative_error,
        },
        THEIRS: {
            "asked_seconds": seconds,
            "wall_seconds": answer["seconds"],
            "latency_seconds": their,
            "max_relative_error": verdicts[THEIRS].max_relative_error,
            "tasks": answer["tasks"],
            "trials": answer["trials"],
            "failed": answer["failed"],
            "history": answer["history"],
        },
        "ratio": their / own if own and their else None,
        "time_share": ours / answer["seconds"] if ours and own and their and own <= their else None,
    }


def main() -> None:
    """Parse the command line, compare, and print or write one JSON object."""
    # What was measured before must not make a run seem quick.
    os.environ["CHAMELEON_RECORDS"] = "none"
    # The module that tunes by MetaSchedule is beside this one.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path, nargs="?", help="of a network; it is run first")
    parser.add_argument("--run", type=Path, help="a run that has delivered its network")
    parser.add_argument("--seconds", type=float, help="MetaSchedule's wall-clock; ours by default")
    parser.add_argument("--layout", choices=("NCHW", "NHWC"), default="NCHW")
    parser.add_argument("--batch", type=int, default=16, help="MetaSchedule's trials per batch")
    parser.add_argument("--threads", type=int, default=len(usable_cores()))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-shipped", action="store_true")
    parser.add_argument("--trust-source", action="store_true", help="import code that --run names")
    parser.add_argument("--json", type=Path, help="where the result goes; stdout by default")
    options = parser.parse_args()
    if (options.pipeline is None) == (options.run is None):
        parser.error("name either a pipeline or a --run")
    if options.run is not None:
        result = compare(options.run, options, None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run")
            result = compare(run, options, tuned(options.pipeline, run))
            result["run"] = str(options.pipeline)
    text = json.dumps(result, indent=1)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
