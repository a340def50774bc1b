"""What ``status`` and ``best`` say of a network, and where each of its times is from."""

from __future__ import annotations

from typing import Any

from chameleon_core.run_view import NetworkSummary, TimeSource

from chameleon_cli.result_rows import duration


def network_json(summary: NetworkSummary | None) -> dict[str, Any] | None:
    """A network as JSON values; None where the model is none.

    Args:
        summary: the ``network`` of a ``chameleon_core.run_view.RunView``.
    """
    if summary is None:
        return None
    return {
        "seconds": summary.seconds,
        "seconds_from": None if summary.seconds is None else str(summary.source),
        "operators_measured": summary.measured,
        "operators": summary.operators,
        "result": summary.result.to_json() if summary.result.delivered else None,
        "failure": summary.result.failure,
    }


def network_sentence(summary: NetworkSummary) -> str:
    """A network's time in words, or why it has none.

    Args:
        summary: the ``network`` of a ``chameleon_core.run_view.RunView``.
    """
    result = summary.result
    if result.failure is not None:
        return f"network: not delivered; {result.failure}"
    if summary.source is TimeSource.COMPARISON:
        what = "network, one inference in each bucket" if result.buckets else "network"
        return (
            f"{what}: {duration(summary.seconds)}, from the comparison at the end{_beside(summary)}"
        )
    compiled = "delivered, but not timed" if result.delivered else "not compiled yet"
    if summary.seconds is None:
        return f"network: {compiled}; none of its {summary.operators} operators has a time"
    every = summary.measured == summary.operators
    which = "its" if every else f"{summary.measured} of its"
    return (
        f"network: {compiled}; {which} {summary.operators} operators take "
        f"{duration(summary.seconds)} together, each alone as the search measured it"
    )


def _beside(summary: NetworkSummary) -> str:
    """What it was compared with, in parentheses."""
    result = summary.result
    others = {**result.like_rivals, "untuned": result.untuned_seconds}
    told = [f"{name} {duration(seconds)}" for name, seconds in others.items() if seconds]
    return f" ({', '.join(told)})" if told else ""
