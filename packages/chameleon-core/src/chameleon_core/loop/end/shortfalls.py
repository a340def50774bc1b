"""Sentences about a result: what it was to reach and does not, and which kernels take the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_core.loop.end.network_result import NetworkResult, fastest_like
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.pipeline.schema import Requirement
from chameleon_core.words import in_seconds

_NAMED = 3
"""Kernels that are named where a network is slow."""

_WORTH_NAMING = 0.02
"""A kernel with a smaller share of the network is not what makes it slow."""


def missed(
    require: Requirement, operators: Sequence[OperatorResult], network: NetworkResult
) -> list[str]:
    """A sentence for each operator that misses a requirement, and one for the network.

    Args:
        require: what was asked for.
        operators: the run's.
        network: what was made of them.
    """
    sentences = []
    if require.network_ratio is not None:
        sentences += _network_missed(require.network_ratio, network)
    if require.min_ratio is None or require.against is None:
        return sentences
    asked = f"{require.min_ratio:g} times the speed of {require.against}"
    for operator in operators:
        other, tuned = operator.seconds_of(require.against), operator.tuned_seconds
        if not (other and tuned):
            sentences.append(f"{operator.name}: {asked} was asked for, but not both have times")
        elif other / tuned < require.min_ratio:
            sentences.append(f"{operator.name}: {other / tuned:.3f} instead of {asked}")
    return sentences


def _network_missed(asked: float, network: NetworkResult) -> list[str]:
    words = f"{asked:g} times the speed of the fastest rival"
    if network.ratio is None:
        return [f"network: {words} was asked for, but it was compared with none"]
    if network.ratio < asked:
        return [f"network: {network.ratio:.3f} instead of {words}"]
    return [
        f"network, bucket {one['name']}: {one['ratio']:.3f} instead of {words}"
        for one in network.buckets
        if one["ratio"] is not None and one["ratio"] < asked
    ]


def slower(network: NetworkResult, operators: Sequence[OperatorResult]) -> str | None:
    """That a network is slower than the fastest of its rivals, by how much, and where the time is.

    Args:
        network: the network.
        operators: the run's, whose times alone stand beside those in the network.

    Returns:
        A sentence or two; None where nothing that was timed is faster.
    """
    if network.ratio is None or network.ratio >= 1.0 or network.latency_seconds is None:
        return _slower_buckets(network)
    rival = min(network.like_rivals.items(), key=lambda pair: pair[1])
    told = _slower_than_fastest(rival, network.latency_seconds, network.ratio)
    largest = _largest(network, operators)
    return f"{told}. Most of its time goes to {'; '.join(largest)}" if largest else told


def _slower_buckets(network: NetworkResult) -> str | None:
    """In which buckets of shapes a network is slower, though in all of them together it is not."""
    behind = [one for one in network.buckets if one["ratio"] is not None and one["ratio"] < 1.0]
    told = (
        f"in bucket {one['name']} "
        + _slower_than_fastest(rival, one["latency_seconds"], one["ratio"])
        for one in behind
        if (rival := fastest_like(one)) is not None
    )
    return "; ".join(told) or None


def _slower_than_fastest(rival: tuple[str, float], latency: float, ratio: float) -> str:
    name, seconds = rival
    return (
        f"the network is slower than {name}: {in_seconds(latency)} against {in_seconds(seconds)}, "
        f"{ratio:.2f} times its speed"
    )


def _largest(network: NetworkResult, operators: Sequence[OperatorResult]) -> list[str]:
    """The largest kernels, those that nobody tuned first, with what each takes."""
    total = sum(kernel["seconds"] for kernel in network.kernels)
    unmeasured = {one["name"]: one["kernel"] for one in network.unmeasured}
    large = [one for one in network.kernels if one["seconds"] >= _WORTH_NAMING * total]
    ordered = sorted(
        large, key=lambda one: (one["tuned"] and one["name"] not in unmeasured, -one["seconds"])
    )
    alone = {one.name: one.tuned_seconds or one.search_seconds for one in operators}
    return [_described(one, total, unmeasured, alone) for one in ordered[:_NAMED]]


def _described(
    kernel: Mapping[str, Any],
    total: float,
    unmeasured: Mapping[str, str],
    alone: Mapping[str, float | None],
) -> str:
    name, seconds = str(kernel["name"]), kernel["seconds"]
    share = f"{in_seconds(seconds)} ({seconds / total:.0%})"
    if name in unmeasured:
        return f"{name}, never measured, {share}"
    if not kernel["tuned"]:
        return f"{name}, not tuned, {share}"
    best = alone.get(name)
    beside = "" if best is None else f", {in_seconds(best * kernel['calls'])} alone"
    return f"{name}, {share}{beside}"


def unmeasured_lines(network: NetworkResult) -> list[str]:
    """Which kernels of a network were never measured, one line for each kind and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in network.unmeasured:
        found.setdefault((one["kernel"], one["because"]), []).append(one["name"])
    return [
        f"not measured, delivered with the {kernel} ({because}): {', '.join(names)}"
        for (kernel, because), names in found.items()
    ]


def left_out_lines(network: NetworkResult) -> list[str]:
    """What a network was not compared with, and why, a line each."""
    return [f"{name} left out: {why}" for name, why in network.left_out.items()]


def footprint_lines(network: NetworkResult) -> list[str]:
    """How soon a network answers and what it takes beside time; no line if that is not known."""
    own = network.footprint.get("network")
    if not own:
        return []
    others = ", ".join(
        f"{name} {_megabytes(one['memory_bytes'])}"
        for name, one in network.footprint.items()
        if one is not own
    )
    beside = f" (processes with {others})" if others else ""
    seconds, memory = own["first_answer_seconds"], _megabytes(own["memory_bytes"])
    first = f"first answer {seconds:.2f} s after its process starts, in {memory} of memory{beside}"
    return [f"{first}; {_megabytes(own['disk_bytes'])} on disk"]


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


__all__ = ["footprint_lines", "left_out_lines", "missed", "slower", "unmeasured_lines"]
