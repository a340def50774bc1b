"""Commands of `chameleon` in processes of their own, from which benchmarks read the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def command_json(words: Sequence[str]) -> dict[str, Any]:
    """Run a command of `chameleon` that prints one JSON object; its progress goes to our stderr.

    Raises:
        SystemExit: the command failed.
    """
    # What was measured before must not make a run seem quick.
    environment = {**os.environ, "CHAMELEON_RECORDS": "none"}
    command = [sys.executable, "-m", "chameleon_cli", *words]
    finished = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, env=environment
    )
    if finished.returncode not in {0, 5}:
        raise SystemExit(f"{' '.join(command)} ended with exit code {finished.returncode}")
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def run_document(document: Mapping[str, Any], *words: str) -> dict[str, Any]:
    """Run a pipeline, which is written beside its output folder; its result.

    Args:
        document: the pipeline.
        words: further options of `chameleon run`.
    """
    file = Path(document["output"]).with_suffix(".yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML.
    return command_json(["run", str(file), "--json", *words])
