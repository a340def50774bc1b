"""The corpus's outcomes as a page of Markdown, and tables of its checks."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from corpus_runs import DELIVERED, INTERNAL, MISSING, REFUSED

RIVALS = ("torch", "torch.compile", "onnxruntime", "openvino")
"""The columns of rivals, by the names that a run gives them."""

NEARLY = 0.95
"""A network at least this many times as fast as the best rival counts as no slower."""

Outcome = Mapping[str, Any]


def page(title: str, outcomes: Sequence[Outcome]) -> str:
    """Everything: machine, summary, delivered networks with the slowest first, the others.

    Args:
        title: of the page.
        outcomes: as ``corpus_runs.run`` wrote them.
    """
    counted = [one for one in outcomes if one["outcome"] != MISSING]
    delivered = sorted((one for one in counted if _ours(one)), key=_order)
    others = [one for one in counted if not _ours(one)]
    parts = [f"### {title}", _machine(outcomes), _summary(counted)]
    if delivered:
        parts.append(_delivered(delivered))
    if others:
        parts.append(_others(others))
    left_out = [one for one in outcomes if one["outcome"] == MISSING]
    if left_out:
        named = (f"{one['case']['name']} ({one['sentence']})" for one in left_out)
        parts.append(f"Left out: {', '.join(named)}.")
    return "\n\n".join(parts) + "\n"


def ratio_of(outcome: Outcome) -> float | None:
    """Time of the fastest rival over ours; None where one of them has none."""
    ours = _ours(outcome)
    rivals = [seconds for seconds in _rivals(outcome).values() if seconds]
    return min(rivals) / ours if ours and rivals else None


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return statistics.geometric_mean(ratios) if ratios else None


def _ours(outcome: Outcome) -> float | None:
    if outcome["outcome"] != DELIVERED:
        return None
    seconds: float | None = outcome["network"].get("latency_seconds")
    return seconds


def _rivals(outcome: Outcome) -> Mapping[str, float]:
    rivals: Mapping[str, float] = (outcome.get("network") or {}).get("rivals") or {}
    return rivals


def _order(outcome: Outcome) -> tuple[float, str]:
    ratio = ratio_of(outcome)
    return (float("inf") if ratio is None else ratio), outcome["case"]["name"]


def _machine(outcomes: Sequence[Outcome]) -> str:
    """What the figures hold for; every machine and state of the code that took part."""
    machines = sorted({f"{one['cores']} cores of {one['processor']}" for one in outcomes})
    commits = sorted({one["commit"] for one in outcomes})
    budgets = sorted({_budget(one["budget"]) for one in outcomes})
    packages = sorted(
        {
            f"{name} {version}"
            for one in outcomes
            for name, version in one["packages"].items()
            if version is not None
        }
    )
    return (
        f"{'; '.join(machines)}. Commit {', '.join(commits)}. float32, batch 1 unless the name "
        f"says otherwise, everyone with the same threads, in turns. Budget: {'; '.join(budgets)}. "
        f"{', '.join(packages)}."
    )


def _budget(budget: Mapping[str, Any]) -> str:
    named = {"measurements": "measurements", "wall_time": "of tuning"}
    return ", ".join(f"{budget[key]} {words}" for key, words in named.items() if key in budget)


def _summary(outcomes: Sequence[Outcome]) -> str:
    """A row for all cases, and one for each part of them."""
    rows = [("all", outcomes)]
    rows += [
        ("held out", [one for one in outcomes if one["case"]["held_out"]]),
        ("developed with", [one for one in outcomes if not one["case"]["held_out"]]),
    ]
    for family in sorted({one["case"]["family"] for one in outcomes}):
        rows.append((family, [one for one in outcomes if one["case"]["family"] == family]))
    header = (
        "cases",
        "number",
        "delivered",
        "refused before tuning",
        "internal errors",
        "other failures",
        "geometric mean of ratios",
        "least ratio",
        f"below {NEARLY}",
    )
    return markdown(header, [_summary_row(name, group) for name, group in rows if group])


def _summary_row(name: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    kinds = Counter(one["outcome"] for one in outcomes)
    ratios = [ratio for one in outcomes if (ratio := ratio_of(one)) is not None]
    known = DELIVERED, REFUSED, INTERNAL
    return (
        name,
        str(len(outcomes)),
        f"{kinds[DELIVERED]} ({kinds[DELIVERED] / len(outcomes):.0%})",
        str(kinds[REFUSED]),
        str(kinds[INTERNAL]),
        str(sum(count for kind, count in kinds.items() if kind not in known)),
        _number(geometric_mean(ratios)),
        _number(min(ratios, default=None)),
        str(sum(ratio < NEARLY for ratio in ratios)),
    )


def _delivered(outcomes: Sequence[Outcome]) -> str:
    header = (
        "network",
        "form",
        "GFLOP",
        "ms",
        *RIVALS,
        "ratio",
        "untuned",
        "s to the network",
        "measurements",
    )
    rows = []
    for one in outcomes:
        network, rivals = one["network"], _rivals(one)
        rows.append(
            (
                _name(one),
                one["case"]["form"],
                f"{one['case']['gflop']:g}",
                _milliseconds(network["latency_seconds"]),
                *(_milliseconds(rivals.get(rival)) for rival in RIVALS),
                _number(ratio_of(one)),
                _milliseconds(network.get("untuned_seconds")),
                _whole(network.get("delivered_seconds")),
                str(one["measurements"]),
            )
        )
    told = (
        "Milliseconds; the ratio is the fastest rival's time over ours, so below 1 we are slower. "
        "`*` is a case that was held out."
    )
    return f"{told}\n\n{markdown(header, rows)}"


def _others(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (
            _name(one),
            one["case"]["form"],
            one["outcome"],
            _whole(one.get("seconds")),
            str(one.get("measurements", 0)),
            " ".join(str(one["sentence"]).replace("|", "\\|").split()),
        )
        for one in sorted(outcomes, key=lambda one: (one["outcome"], one["case"]["name"]))
    ]
    header = ("network", "form", "outcome", "s until then", "measurements", "in its words")
    return markdown(header, rows)


def _name(outcome: Outcome) -> str:
    case = outcome["case"]
    return f"{case['name']}{' *' if case['held_out'] else ''}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _whole(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_IN_TYPES = (
    *("network", "operators", "error of the fastest", "delivered", "error", "of fresh inputs"),
    *("MB", "why"),
)


def precision_table(answers: Sequence[Mapping[str, Any]]) -> str:
    """A row for each network in reduced precision: what was delivered, and its errors.

    Args:
        answers: with a ``precision`` each, as ``corpus_precision.told`` returns it.
    """
    told = (
        "Errors are the largest difference to the framework over the largest output: of the "
        "fastest types as simulated, of what was delivered on the inputs that it was verified "
        "with, and on others. Kernels are first guesses. MB are those of the largest process."
    )
    return f"{told}\n\n{markdown(_IN_TYPES, [_in_types(one) for one in answers])}"


def _in_types(answer: Mapping[str, Any]) -> tuple[str, ...]:
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
