"""Whether a change left every search as it was: digests of what is measured on recorded tables.

`python benchmarks/same_search.py TABLE...` searches each recorded table with each preset and seed,
and prints one line for each: a digest of the configurations measured, in their order, with their
times. A change of the code's structure prints the very same lines as before. The lines of another
version come from the `chameleon` of its environment: `--command FOLDER/bin/chameleon`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

# What was measured before must not make a run seem quick.
os.environ["CHAMELEON_RECORDS"] = "none"

PRESETS = ("default", "autotvm", "local", "genetic", "paper")


def digest(run: Path) -> tuple[int, str]:
    """How many measurements a run folder has, and the digest of them in their order."""
    with contextlib.closing(sqlite3.connect(run / "records.sqlite")) as records:
        rows = records.execute("SELECT config, seconds, failure FROM measurements ORDER BY id")
        lines = [json.dumps(row) for row in rows]
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def search(command: str, pipeline: dict[str, object], folder: Path) -> tuple[int, str]:
    """Run a pipeline in a folder; its digest.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(pipeline), encoding="utf-8")  # JSON is YAML
    subprocess.run([command, "run", str(file), "--json"], check=True, capture_output=True)
    return digest(folder / "run")


def main() -> None:
    """Parse the arguments, search, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", type=Path, help="Kernel Tuner caches or T4 files")
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--measurements", type=int, default=128)
    parser.add_argument("--command", default=str(Path(sys.executable).parent / "chameleon"))
    arguments = parser.parse_args()
    for table, preset, seed in itertools.product(
        arguments.tables, arguments.presets, range(arguments.seeds)
    ):
        with tempfile.TemporaryDirectory() as folder:
            pipeline = {
                "model": {"table": str(table.resolve())},
                "runner": "replay",
                "space": "table",
                "preset": preset,
                "seed": seed,
                "budget": {"measurements": arguments.measurements},
                "output": str(Path(folder) / "run"),
            }
            count, found = search(arguments.command, pipeline, Path(folder))
        print(f"{table.name} {preset} seed {seed}: {count} measurements, {found}", flush=True)


if __name__ == "__main__":
    main()
