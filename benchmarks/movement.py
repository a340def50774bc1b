"""Where a delivered network's time goes that is no arithmetic: calls, and kernels that only move.

python benchmarks/movement.py runs/squeezenet/network runs/shufflenet/network
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_networks.running.profile import AROUND, kernel_seconds

MOVES = frozenset(
    {"concat", "concatenate", "split", "slice", "strided", "reshape", "transpose", "shuffle"}
)
"""What TVM and the views call functions that compute nothing; a fused one is all of its names."""


def moves_only(name: str) -> bool:
    """Whether a kernel that is not tuned computes nothing."""
    words = re.sub(r"_of_.*", "", name).removeprefix("fused_").split("_")
    return all(word.rstrip("0123456789") in MOVES for word in words)


def shares(folder: Path) -> dict[str, Any]:
    """Seconds of one inference and the shares of calls and of moves in it."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(one["shape"]).astype(one["dtype"])
        if one["dtype"].startswith("float")
        else np.zeros(one["shape"], one["dtype"])
        for one in manifest["inputs"]
    ]
    rows = kernel_seconds(str(folder), inputs)
    whole = sum(row.seconds for row in rows)
    around = sum(row.seconds for row in rows if row.name == AROUND)
    moves = [row for row in rows if not row.tuned and moves_only(row.name)]
    moving = sum(row.seconds for row in moves)
    return {
        "network": str(folder),
        "seconds": whole,
        "calls": sum(row.calls for row in rows if row.name != AROUND),
        "around_share": around / whole,
        "moves": sum(row.calls for row in moves),
        "moving_share": moving / whole,
    }


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="delivered networks")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    found = [shares(folder) for folder in arguments.folders]
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    for one in found:
        print(
            f"{one['network']}: {one['seconds'] * 1e6:.0f} us, {one['calls']} calls; around the "
            f"kernels {one['around_share']:.1%}, in {one['moves']} moves {one['moving_share']:.1%}"
        )


if __name__ == "__main__":
    main()
