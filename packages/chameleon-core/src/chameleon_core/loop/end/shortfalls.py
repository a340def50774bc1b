"""Sentences about a result: what it was to reach and does not, and which kernels take the time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.network_result import Footprint, InferenceResult, KernelTime, NetworkResult
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
        f"network, bucket {bucket.name}: {bucket.ratio:.3f} instead of {words}"
        for bucket in network.buckets
        if bucket.ratio is not None and bucket.ratio < asked
    ]


def slower(network: NetworkResult, operators: Sequence[OperatorResult]) -> str | None:
    """That a network is slower than the fastest of its rivals, by how much, and where the time is.

    Args:
        network: the network.
        operators: the run's, whose times alone stand beside those in the network.

    Returns:
        A sentence or two; None where nothing that was timed is faster.
    """
    told = _slower_than_fastest(network)
    if told is None:
        return _slower_buckets(network)
    largest = _largest(network, operators)
    return f"{told}. Most of its time goes to {'; '.join(largest)}" if largest else told


def _slower_buckets(network: NetworkResult) -> str | None:
    """In which buckets of shapes a network is slower, though in all of them together it is not."""
    told = (
        f"in bucket {bucket.name} {words}"
        for bucket in network.buckets
        if (words := _slower_than_fastest(bucket)) is not None
    )
    return "; ".join(told) or None


def _slower_than_fastest(result: InferenceResult) -> str | None:
    """That it is slower than its fastest rival; None if it is not."""
    rival, ratio = result.fastest_rival, result.ratio
    if rival is None or ratio is None or ratio >= 1.0:
        return None
    ours, theirs = in_seconds(result.latency_seconds), in_seconds(rival[1])
    words = f"the network is slower than {rival[0]}: {ours} against {theirs}"
    return f"{words}, {ratio:.2f} times its speed"


def _largest(network: NetworkResult, operators: Sequence[OperatorResult]) -> list[str]:
    """The largest kernels, those that nobody tuned first, with what each takes."""
    total = sum(kernel.seconds for kernel in network.kernels)
    unmeasured = {task.name for task in network.unmeasured}
    large = [kernel for kernel in network.kernels if kernel.seconds >= _WORTH_NAMING * total]
    ordered = sorted(
        large,
        key=lambda kernel: (kernel.tuned and kernel.name not in unmeasured, -kernel.seconds),
    )
    alone = {one.name: one.tuned_seconds or one.search_seconds for one in operators}
    return [_described(kernel, total, unmeasured, alone) for kernel in ordered[:_NAMED]]


def _described(
    kernel: KernelTime,
    total: float,
    unmeasured: Collection[str],
    alone: Mapping[str, float | None],
) -> str:
    name, seconds = kernel.name, kernel.seconds
    share = f"{in_seconds(seconds)} ({seconds / total:.0%})"
    if name in unmeasured:
        return f"{name}, never measured, {share}"
    if not kernel.tuned:
        return f"{name}, not tuned, {share}"
    best = alone.get(name)
    beside = "" if best is None else f", {in_seconds(best * kernel.calls)} alone"
    return f"{name}, {share}{beside}"


def remarks(network: NetworkResult) -> list[str]:
    """How a network was verified, and what else there is to know beside its times, a line each."""
    own = network.own_precision
    # A frontend that finds no framework here compares with the network as TVM compiles it anyway.
    reference = "TVM without tuning" if network.reference == "untuned" else network.reference
    verified = [reference and f"compared with {reference}", network.conditioning]
    if own is not None and own.reference:
        verified.append(f"in {own.dtype} {own.max_relative_error:.1e} off {own.reference}")
    guesses: dict[tuple[str, str], list[str]] = {}
    for task in network.unmeasured:
        guesses.setdefault((task.kernel, task.because), []).append(task.name)
    return [
        *filter(None, ["; ".join(filter(None, verified))]),
        *(
            f"not measured, delivered with the {kernel} ({because}): {', '.join(names)}"
            for (kernel, because), names in guesses.items()
        ),
        *_footprint_lines(network),
        *(f"{name} left out: {why}" for name, why in network.left_out.items()),
    ]


def _footprint_lines(network: NetworkResult) -> list[str]:
    """How soon a network answers and what it takes beside time; no line if that is not known."""
    own = network.footprint.get("network", Footprint())
    if own.first_answer_seconds is None:
        return []
    others = ", ".join(
        f"{name} {_megabytes(footprint.memory_bytes)}"
        for name, footprint in network.footprint.items()
        if footprint is not own
    )
    beside = f" (processes with {others})" if others else ""
    seconds, memory = own.first_answer_seconds, _megabytes(own.memory_bytes)
    first = f"first answer {seconds:.2f} s after its process starts, in {memory} of memory{beside}"
    return [f"{first}; {_megabytes(own.disk_bytes)} on disk"]


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.0f} MB"
