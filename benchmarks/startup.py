"""Measure how long the commands that only look at things take, as whole processes.

`python benchmarks/startup.py` prints seconds for `--help`, `plugins` and `validate`, and which of
the heavy libraries each of them imported (there should be none).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HEAVY = ("torch", "tvm", "xgboost", "sklearn", "numpy")
QUICKSTART = Path(__file__).parent.parent / "examples" / "quickstart.yaml"
COMMANDS = (["--help"], ["plugins"], ["validate", str(QUICKSTART)])


def seconds(command: list[str]) -> float:
    """Wall-clock of one run in seconds."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "chameleon_cli", *command], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def imported(command: list[str]) -> list[str]:
    """The heavy libraries that a command imports."""
    code = (
        "import sys; from chameleon_cli._main import run\n"
        f"code = run({command!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    found: list[str] = json.loads(finished.stderr.splitlines()[-1].replace("'", '"'))
    return found


def main() -> None:
    """Time each command and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    results = {}
    for command in COMMANDS:
        seconds(command)
        taken = [seconds(command) for _ in range(arguments.runs)]
        results[command[0]] = {
            "median_seconds": statistics.median(taken),
            "largest_seconds": max(taken),
            "imported": imported(command),
        }
    for name, one in results.items():
        print(
            f"{name:10} median {one['median_seconds']:.3f} s, largest "
            f"{one['largest_seconds']:.3f} s, heavy imports: {one['imported'] or 'none'}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
