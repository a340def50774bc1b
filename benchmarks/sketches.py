"""Which share of what is proposed in sketch spaces of other people's operators is invalid.

`python benchmarks/sketches.py` tunes the ten operators of `foreign_operators.py` in one run of
`chameleon`, 32 measurements each, and prints for every operator how many of the measured
configurations failed as `invalid`, and how many failed at all. It exits with 1 if more than 2 % of
all were invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from foreign_operators import OPERATORS

MOST = 0.02
"""The share of invalid configurations that is accepted."""

SOURCE = Path(__file__).with_name("foreign_operators.py")


def pipeline(measurements: int, output: Path) -> str:
    """The pipeline file, as text."""
    operators = [
        {"primfunc": {"name": one.__name__, "source": f"{SOURCE}:{one.__name__}"}}
        for one in OPERATORS
    ]
    return json.dumps(
        {
            "model": {"operators": operators},
            "target": "native",
            "space": "sketch",
            "budget": {"measurements": measurements},
            "output": str(output),
        }
    )


def main() -> int:
    """Tune, count, and say whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measurements", type=int, default=32, help="per operator")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "pipeline.yaml")
        written.write_text(pipeline(arguments.measurements, Path(folder, "run")))
        finished = subprocess.run(
            [sys.executable, "-m", "chameleon_cli", "run", str(written), "--json"],
            # What was measured before must not be learnt from.
            env={**os.environ, "CHAMELEON_RECORDS": "none"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    operators = json.loads(finished.stdout)["operators"]
    print(f"{'operator':20} measured  invalid  failed")
    for operator in operators:
        failed = operator["failed"]
        numbers = operator["measurements"], failed.get("invalid", 0), sum(failed.values())
        print(f"{operator['name']:20} {numbers[0]:8} {numbers[1]:8} {numbers[2]:7}")
    measured = sum(operator["measurements"] for operator in operators)
    invalid = sum(operator["failed"].get("invalid", 0) for operator in operators)
    print(f"invalid: {invalid} of {measured}, {invalid / measured:.1%} (bar: {MOST:.0%})")
    return int(invalid > MOST * measured)


if __name__ == "__main__":
    sys.exit(main())
