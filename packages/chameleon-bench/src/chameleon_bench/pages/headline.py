"""What was won, in a sentence or two and a few figures."""

from __future__ import annotations

import math

import attrs
from chameleon_core.words import in_seconds

from chameleon_bench.pages.run_record import RunRecord, TaskRecord


@attrs.frozen(kw_only=True)
class Fact:
    """A figure at the top of a page.

    Attributes:
        name: what it is of.
        value: with its unit.
        note: beneath it; may be empty.
    """

    name: str
    value: str
    note: str = ""


def headline(record: RunRecord) -> list[str]:
    """What was won, as sentences; first the network, where there is one."""
    network = record.network
    if network.failure is not None:
        return ["No network was delivered."]
    if network.latency_seconds is not None:
        return _of_network(record, network.latency_seconds)
    timed = [one for one in record.tasks if one.best_seconds is not None]
    if not timed:
        return ["Nothing has a time yet." if not record.finished else "Nothing succeeded."]
    if len(record.tasks) == 1:
        return [_of_operator(timed[0])]
    return [*_of_kernels(record), *_of_operators(record, timed)]


def facts_of(record: RunRecord) -> list[Fact]:
    """The few figures of a run."""
    facts = []
    network = record.network
    if network.latency_seconds is not None:
        facts.append(Fact(name="one inference", value=in_seconds(network.latency_seconds)))
    elif len(record.tasks) == 1 and (best := record.tasks[0].best_seconds) is not None:
        flop = record.tasks[0].task.flop
        speed = f"{flop / best / 1e9:.4g} GFLOP/s" if flop else ""
        facts.append(Fact(name="fastest", value=in_seconds(best), note=speed))
    measured = sum(len(one.measured.seconds) for one in record.tasks)
    failed = sum(int((~one.measured.ok).sum()) for one in record.tasks)
    share = f"{failed} failed" if failed else "none failed"
    facts.append(Fact(name="measurements", value=f"{measured:,}", note=share))
    if len(record.tasks) > 1:
        facts.append(Fact(name="operators", value=str(len(record.tasks))))
    if record.seconds:
        facts.append(Fact(name="tuning took", value=_duration(record.seconds)))
    return facts


def _of_network(record: RunRecord, latency: float) -> list[str]:
    network = record.network
    told = f"One inference takes {in_seconds(latency)}"
    rival = min(network.like_rivals.items(), key=lambda pair: pair[1], default=None)
    if rival is not None:
        name, seconds = rival
        told += f"; {name}, the fastest alternative here, takes {in_seconds(seconds)}"
        told += f", {seconds / latency:.2f} times as long"
    sentences = [f"{told}."]
    if network.untuned_seconds:
        times = network.untuned_seconds / latency
        sentences.append(
            f"Compiled by TVM without tuning it takes {in_seconds(network.untuned_seconds)}, "
            f"{times:.3g} times as long."
        )
    return sentences


def _of_kernels(record: RunRecord) -> list[str]:
    """What the kernels of a network add up to that was not timed as a whole."""
    total = math.fsum(kernel["seconds"] for kernel in record.network.kernels)
    return [f"The delivered network's kernels take {in_seconds(total)} in all."] if total else []


def _of_operator(one: TaskRecord) -> str:
    best = one.best_seconds
    told = f"The fastest kernel found for {one.task.name} takes {in_seconds(best)}"
    others = {
        "the vendor's": one.operator.vendor_seconds,
        "the untuned one": one.operator.untuned_seconds,
        "the first guess": one.first_seconds,
    }
    compared = [
        f"{name} {in_seconds(seconds)} ({seconds / best:.3g} times as long)"
        for name, seconds in others.items()
        if seconds and best
    ]
    return f"{told}; {', '.join(compared)}." if compared else f"{told}."


def _of_operators(record: RunRecord, timed: list[TaskRecord]) -> list[str]:
    of = f"{len(timed)} of {len(record.tasks)} operators have a time."
    ratios = [one.operator.ratio for one in timed if one.operator.ratio]
    untuned = [
        one.operator.untuned_seconds / one.best_seconds
        for one in timed
        if one.operator.untuned_seconds and one.best_seconds
    ]
    sentences = [of]
    guessed = [
        one.first_seconds / one.best_seconds
        for one in timed
        if one.first_seconds and one.best_seconds
    ]
    if guessed:
        sentences.append(
            f"Tuned kernels are {_mean(guessed):.3g} times as fast as the first guesses in the "
            "geometric mean."
        )
    if ratios:
        ahead = sum(ratio >= 1.0 for ratio in ratios)
        sentences.append(
            f"Tuned kernels are {_mean(ratios):.2f} times as fast as the vendor's in the geometric "
            f"mean, and at least as fast in {ahead} of {len(ratios)} operators."
        )
    if untuned:
        sentences.append(
            f"Tuned kernels are {_mean(untuned):.3g} times as fast as untuned ones in the "
            "geometric mean."
        )
    return sentences


def _mean(values: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _duration(seconds: float) -> str:
    if seconds < 120:  # noqa: PLR2004 - two minutes are easier to read as seconds
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


__all__ = ["Fact", "facts_of", "headline"]
