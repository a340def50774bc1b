"""How long inferences take if other processes keep the cores busy, with one thread pool or another.

`python benchmarks/pools.py RUN` links the network of a run folder with the thread pool of
`runtime/pool.c` and with those in `benchmarks/pools/`: a piece for each thread, OpenMP, oneTBB and
pthreadpool. Each measurement is a process of its own, alone and beside one and two processes that
compute without end; rounds go through all pools in turn. It prints the medians over the rounds of a
process's median and 99th percentile, the ratios to its quiet median, and whether all outputs are
the same bits. It repeats a measurement during which yet other processes computed. `--pools` names
some of the pools; `pool:PIECES_EACH=8,TURN=500000` is `pool.c` with other constants.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core._run_files import RunFile
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._c_runtime.linking import OBJECTS, SOURCES, link_library, run_compiler
from chameleon_networks._compile.sequence.weights import WEIGHTS
from chameleon_networks._throughput.comparison import network_request
from served_processes import random_inputs, turn
from tvm_ffi.libinfo import include_paths

POOLS = Path(__file__).with_name("pools")
FLAGS = ("-O2", "-fPIC", "-Wall", "-Wextra", "-fvisibility=hidden")
LIBRARIES = {
    # Their threads outlive a library that is unloaded.
    "openmp": ["-fopenmp", "-Wl,-z,nodelete"],
    "tbb": ["-ltbb", "-Wl,-z,nodelete"],
    "pthreadpool": ["-lpthreadpool"],
}
ATTEMPTS = 10
QUIET = 0.06
"""Cores that other processes and the host may have had during a measurement."""

ALL = ("pool", "static", "openmp", "tbb", "pthreadpool")


def link(pool: str, network: Path, manifest: dict[str, Any], folder: Path) -> None:
    """Make a delivered folder whose library has a certain pool.

    Args:
        pool: a file's stem, and other constants after a colon.
        network: the delivered folder, whose weights are linked to, not copied.
        manifest: its manifest.
        folder: made.
    """
    folder.mkdir()
    name, _, constants = pool.partition(":")
    own = (SOURCES / "pool.c").read_text(encoding="utf-8")
    for constant in filter(None, constants.split(",")):
        key, value = constant.split("=")
        own, count = re.subn(rf"(#define {key}) \S+", rf"\1 {value}", own)
        if count != 1:
            raise SystemExit(f"pool.c has no constant {key}")
    sources = [folder / "pool.c"]
    libraries = LIBRARIES.get(name, [])
    if name != "pool":
        sources += POOLS.glob(f"{name}.c*")
        if len(sources) == 1:
            raise SystemExit(f"there is no pool {name}; there are {', '.join(ALL)}")
        # What another pool does not have itself, it has of pool.c, the number of pieces above all.
        given = sources[1].read_text(encoding="utf-8") + (POOLS / "loop.h").read_text("utf-8")
        for function in set(re.findall(r"^\S.*\b(pool_\w+)\(.*\{", given, re.MULTILINE)):
            own = own.replace(f"{function}(", f"unused_{function}(")
    sources[0].write_text(own, encoding="utf-8")
    objects = []
    for source in sources:
        objects.append(str(folder / f"{source.name}.o"))
        language = ("-x", "c", "-std=gnu11") if source.suffix == ".c" else ("-x", "c++")
        headers = [f"-I{place}" for place in (SOURCES, POOLS, *include_paths())]
        words = [*headers, *FLAGS, *(flag for flag in libraries if flag == "-fopenmp")]
        run_compiler(*language, *words, "-c", str(source), "-o", objects[-1])
    module = folder / manifest["module"]
    link_library(network / OBJECTS, manifest, module, module.stem, [*objects, *libraries])
    for file in (*network.glob("*.py"), network / WEIGHTS):
        (folder / file.name).hardlink_to(file.resolve())
    write_manifest(folder, manifest)


Measured = tuple[str, int, float, float, str]
"""Pool, neighbours, median and 99th percentile of a process in seconds, digest of its outputs."""


def others() -> float:
    """Seconds that cores were busy with what this process did not start, and the host had them."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, interrupts, soft, stolen = map(int, fields[:8])
    busy = (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return busy - children.ru_utime - children.ru_stime


def measure(pool: str, outputs: Path, request: dict[str, Any]) -> Measured:
    """What a new process measures, in the first of several during which others were quiet.

    Args:
        pool: its name.
        outputs: a file for the outputs of one inference.
        request: see ``clients.answered``.
    """
    request["outputs"] = str(outputs)
    for _ in range(ATTEMPTS):
        before, begun = others(), time.monotonic()
        found = turn(request)
        if others() - before < QUIET * (time.monotonic() - begun):
            with np.load(outputs) as stored:
                arrays = b"".join(stored[name].tobytes() for name in stored.files)
            digest = hashlib.sha256(arrays).hexdigest()
            return pool, request["neighbours"], found["p50_seconds"], found["p99_seconds"], digest
    raise SystemExit("other processes take the cores; repeat this once they are done")


def print_table(measured: list[Measured]) -> None:
    """Print the medians over the rounds."""
    print("| pool | neighbours | rounds | median, ms | of the quiet one | 99th percentile, ms |")
    print("|---|---|---|---|---|---|")
    quiet = 0.0
    for pool, neighbours in sorted({one[:2] for one in measured}):
        times = [one[2:4] for one in measured if one[:2] == (pool, neighbours)]
        median, late = (statistics.median(side) * 1e3 for side in zip(*times, strict=True))
        quiet = median if neighbours == 0 else quiet
        ratio = f"{median / quiet:.2f}" if quiet else ""
        print(f"| {pool} | {neighbours} | {len(times)} | {median:.2f} | {ratio} | {late:.2f} |")
    digests = {one[4] for one in measured}
    print(f"outputs {'the same bits' if len(digests) == 1 else 'DIFFER'}")


def main() -> None:
    """Parse the arguments, link, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pools", nargs="+", default=ALL)
    parser.add_argument("--neighbours", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    network = (arguments.run / RunFile.NETWORK).absolute()
    manifest = read_manifest(network)
    measured: list[Measured] = []
    # Beside the network, since a link to a file stays in its file system.
    with tempfile.TemporaryDirectory(prefix="pools-", dir=arguments.run) as made:
        folders = {pool: Path(made) / str(place) for place, pool in enumerate(arguments.pools)}
        inputs = random_inputs(manifest, Path(made))
        for pool, folder in folders.items():
            link(pool, network, manifest, folder)
        for number in range(arguments.rounds):
            for pool, folder in list(folders.items())[:: -1 if number % 2 else 1]:
                for neighbours in arguments.neighbours:
                    request = {
                        **network_request(folder, 1, arguments.threads),
                        "inputs": inputs,
                        "seconds": arguments.seconds,
                        "neighbours": neighbours,
                    }
                    measured.append(measure(pool, folder / "outputs.npz", request))
    print_table(measured)


if __name__ == "__main__":
    main()
