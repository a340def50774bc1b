"""Cuts a table of the Kernel Tuner benchmark hub to what tests need: ``cut_table.py FROM TO``.

Every configuration stays, with its mean time or the kind of its failure. Of the repeats four stay:
both quartiles, and the two in the middle, so that the median is what it was. Of the other times
stays what compiling took, and running as one sum. ``--means-alone`` leaves repeats and these out.
"""

import argparse
import gzip
import itertools
import json
from pathlib import Path
from typing import Any

KEPT = ("device_name", "kernel_name", "problem_size", "tune_params_keys", "tune_params")
RUNNING = ("verification_time", "benchmark_time", "framework_time")
DIGITS = 4
"""Of a time in milliseconds: a tenth of what the clock of these GPUs tells; of means one less."""


def cut(table: dict[str, Any], *, means_alone: bool) -> dict[str, Any]:
    """The table with the same configurations and less about each of them."""
    rows = {
        key: _row(row, table["tune_params_keys"], means_alone=means_alone)
        for key, row in table["cache"].items()
    }
    # One row is enough to say how many operations there are.
    known = ((key, row["GFLOP/s"]) for key, row in table["cache"].items() if "GFLOP/s" in row)
    for key, rate in itertools.islice(known, 1):
        rows[key]["GFLOP/s"] = rate
    return {**{key: table[key] for key in KEPT if key in table}, "cache": rows}


def _row(row: dict[str, Any], parameters: list[str], *, means_alone: bool) -> dict[str, Any]:
    kept = {key: row[key] for key in parameters}
    time = row["time"]
    kept["time"] = time if isinstance(time, str) else round(time, DIGITS - means_alone)
    if means_alone:
        return kept
    repeats = sorted(row.get("times") or ())
    if repeats:
        last = len(repeats) - 1
        places = (last // 4, last // 2, -(-last // 2), last - last // 4)
        kept["times"] = [round(repeats[place], DIGITS) for place in places]
    # They are hundreds of milliseconds.
    others = {
        "compile_time": round(row.get("compile_time") or 0.0, -1),
        "benchmark_time": round(sum(row.get(key) or 0.0 for key in RUNNING), -1),
    }
    return kept | {key: value for key, value in others.items() if value}


def main() -> None:
    """Cut one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("--means-alone", action="store_true")
    given = parser.parse_args()
    table = json.loads(gzip.decompress(given.source.read_bytes()))
    text = json.dumps(cut(table, means_alone=given.means_alone), separators=(",", ":"))
    # Without the time of day, so that one table always gives one file.
    given.to.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
