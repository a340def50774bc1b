"""Makes listings: ``python -m chameleon_tvm._building.listing_process``, with JSON on stdin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import SpaceProvider, StageRef, Task
from chameleon_system.api import usable_cores, write_atomic

_MAX_CHARACTERS = 4_000_000
"""Largest number of characters of a listing file. The rest of a longer listing is left out."""


def main() -> int:
    """Write the TensorIR and assembly of a run's winners; the exit code is 1 if any failed."""
    work = json.load(sys.stdin)
    provider: SpaceProvider = StageRef(**work["space"]).create()

    def fails(winner: Mapping[str, Any]) -> bool:
        task = Task(**winner["task"])
        try:
            builder = provider.builder(task, threads=work["threads"])
            _write(Path(winner["folder"]), builder.listings(tuple(winner["config"])))
        except Exception as error:  # noqa: BLE001 - the others still get listings
            print(f"{task.name}: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
            return True
        return False

    # TVM releases Python's global lock while it compiles, so threads run in parallel.
    with ThreadPoolExecutor(len(usable_cores())) as pool:
        return int(any([*pool.map(fails, work["winners"])]))


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        folder.mkdir(exist_ok=True)
        rest = (
            ""
            if len(text) <= _MAX_CHARACTERS
            else f"\n... {len(text) - _MAX_CHARACTERS} characters more\n"
        )
        write_atomic(folder / Path(name).name, text[:_MAX_CHARACTERS] + rest)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Without finalisers: a compiler's libraries may hang in theirs.
    os._exit(status)
