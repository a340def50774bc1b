"""How long a network with several libraries loads: `python benchmarks/level_loads.py FOLDER`.

Each load is in a fresh process, which has imported NumPy before. The tuned library and each further
one of the folder are loaded in turns: with an empty cache folder (`first`), with the file that this
load wrote (`later`), and without a cache folder (`private`). The output has the median of the
milliseconds, its ratio to that of the tuned library, and the private memory and the proportional
set size (Pss) of a process while two processes have loaded the network.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chameleon_networks._artifact.load import inner_folders
from chameleon_networks._artifact.writer import read_manifest

LOAD = """
import json, runpy, sys, time
import numpy
began = time.perf_counter()
network = runpy.run_path(sys.argv[1] + "/load.py")["load"](sys.argv[1])
print((time.perf_counter() - began) * 1e3, flush=True)
for _ in sys.stdin:
    with open("/proc/self/smaps_rollup") as lines:
        rows = dict(line.split()[:2] for line in list(lines)[1:])
    private = int(rows["Private_Clean:"]) + int(rows["Private_Dirty:"])
    print(json.dumps([private / 1024, int(rows["Pss:"]) / 1024]), flush=True)
"""


def started(folder: Path, level: str, cache: Path) -> subprocess.Popen[str]:
    """A process that loads a library of a folder, and then tells its memory for each line."""
    return subprocess.Popen(
        [sys.executable, "-c", LOAD, str(folder)],
        env={**os.environ, "NETWORK_LEVEL": level, "XDG_CACHE_HOME": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> Any:
    """The next line of a process, read as JSON."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def milliseconds(folder: Path, level: str, cache: Path) -> float:
    """How long a fresh process loads a library."""
    with started(folder, level, cache) as process:
        taken: float = line_of(process)
        process.communicate()
    return taken


def memory(folder: Path, level: str, cache: Path) -> list[float]:
    """The private memory and the Pss, in MiB, of one of two processes that loaded a library."""
    with ExitStack() as stack:
        pair = [stack.enter_context(started(folder, level, cache)) for _ in range(2)]
        for process in pair:
            line_of(process)
        for process in pair:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answer, _ = map(line_of, pair)
        return list(answer)


def main() -> None:
    """Load each library in turns, and print a line for each way to load it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    manifest = read_manifest(folder)
    own = manifest["levels"][0]["name"]
    with tempfile.TemporaryDirectory() as scratch:
        empty, kept, none = Path(scratch, "empty"), Path(scratch, "kept"), Path(os.devnull)
        ways = {(own, "tuned"): none}
        for level in inner_folders(manifest):
            caches = {"first": empty, "later": kept, "private": none}
            ways |= {(level, way): cache for way, cache in caches.items()}
        taken: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
        for turn in range(arguments.turns + 1):
            for (level, way), cache in ways.items():
                shutil.rmtree(empty, ignore_errors=True)
                seconds = milliseconds(folder, level, cache)
                if turn:  # the first turn fills the caches
                    taken[level, way].append(seconds)
        base = statistics.median(taken[own, "tuned"])
        for (level, way), cache in ways.items():
            median = statistics.median(taken[level, way])
            private, pss = memory(folder, level, cache)
            print(
                f"{level:16} {way:8} {median:7.1f} ms, {median / base:.2f} times, "
                f"private {private:.1f} MiB, Pss {pss:.1f} MiB"
            )


if __name__ == "__main__":
    main()
