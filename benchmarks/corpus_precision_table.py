"""What came of networks in reduced precision as a table of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEADER = (
    *("network", "operators", "error of the fastest", "delivered", "error", "of fresh inputs"),
    *("MB", "why"),
)


def precision_table(answers: Sequence[Mapping[str, Any]]) -> str:
    """A row for each network: what was delivered, and its errors.

    Args:
        answers: with a ``precision`` each, as ``corpus_precision.told`` returns it.
    """
    rows = [_row(one) for one in answers]
    told = (
        "Errors are the largest difference to the framework over the largest output: of the "
        "fastest types as simulated, of what was delivered on the inputs that it was verified "
        "with, and on others. Kernels are first guesses. MB are those of the largest process."
    )
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return f"{told}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(answer: Mapping[str, Any]) -> tuple[str, ...]:
    found = answer["precision"]
    front = found["front"]
    counts = ", ".join(f"{kind} {count}" for kind, count in found["types"].items())
    return (
        answer["case"],
        str(sum(front[0]["types"].values())) if front else "-",
        _error(min(front, key=lambda row: row["seconds"])["error"]) if front else "-",
        counts or found["precision"],
        _error(answer["network"]["max_relative_error"]),
        _error(found["fresh_error"]),
        str(found["megabytes"]),
        str(found["summary"]).replace("|", "\\|"),
    )


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
