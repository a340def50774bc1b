"""The lines that a run prints at its end.

They say how fast the result is, how fast other implementations are, and how to use the result.
"""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path

from chameleon_core.dtypes import FLOAT32
from chameleon_core.loop.end.result import OperatorResult, RunResult
from chameleon_core.network_result import NetworkResult
from chameleon_core.stages.jobs import TUNED
from chameleon_core.words import counted, in_ratio, in_seconds

_FORM = "#.3g"
"""Format of times: timings are accurate to three digits at best."""


def summary_lines(result: RunResult) -> list[str]:
    """Lines about a run's result: its speed, the speed of rivals, its folder, and how to use it.

    The list is empty if the run has no valid result.

    Args:
        result: the result of a run that has ended.
    """
    timed = [operator for operator in result.operators if operator.tuned_seconds is not None]
    network = result.network
    if network.failure is not None or not (timed or network.delivered):
        return []
    if network.delivered:
        lines = _network_lines(network)
    else:
        lines = _operator_lines(timed, len(result.operators))
    usage = f"Use it: {usage_of(result)}" if result.usage else ""
    return [*lines, f"The result is in {_shown(result.folder)}. {usage}".rstrip()]


def usage_of(result: RunResult) -> str:
    """The command or Python code that uses a result, with the path of its folder."""
    folder = _shown(result.folder)
    typed = shlex.quote(folder) if result.usage.startswith("chameleon ") else folder
    return result.usage.replace("{folder}", typed)


def _network_lines(network: NetworkResult) -> list[str]:
    if network.latency_seconds is None:
        return ["The network is delivered and verified, but not timed."]
    each = " in each bucket" if network.buckets else ""
    dtype = "" if network.precision == FLOAT32 else f", in {network.precision}"
    took = in_seconds(network.latency_seconds, _FORM)
    lines = [f"The network takes {took} for one inference{each}{dtype}."]
    rival, ratio = network.fastest_rival, network.ratio
    others = [
        f"{name} {in_seconds(seconds, _FORM)}"
        for name, seconds in network.like_rivals.items()
        if seconds is not None and (rival is None or name != rival[0])
    ]
    if rival is not None and ratio is not None:
        fastest = f"{rival[0]} ({in_seconds(rival[1], _FORM)}), the fastest other"
        first = f"It is {in_ratio(ratio)} times as fast as {fastest}"
        lines.append("; ".join(filter(None, [first, ", ".join(others)])) + ".")
    elif network.untuned_seconds is not None:
        lines.append(f"Untuned, it takes {in_seconds(network.untuned_seconds, _FORM)}.")
    return lines


def _operator_lines(timed: Sequence[OperatorResult], count: int) -> list[str]:
    total = in_seconds(sum(operator.tuned_seconds or 0.0 for operator in timed), _FORM)
    if count == 1:
        lines = [f"{timed[0].name} takes {total}."]
    else:
        of = "" if len(timed) == count else f" of {count}"
        lines = [f"{counted(len(timed), 'operator')}{of} take {total} together."]
    variants = [variant for operator in timed for variant in operator.variants]
    vendors = [variant for variant in variants if variant.vendor]
    names = dict.fromkeys(variant.name for variant in vendors or variants)
    against = [words for name in names if (words := _against(name, timed)) is not None]
    subject = "It is" if count == 1 else "They are"
    return [*lines, f"{subject} {' and '.join(against)}."] if against else lines


def _against(name: str, timed: Sequence[OperatorResult]) -> str | None:
    """The speed relative to one baseline, over the operators for which the baseline has a time."""
    times = [operator.seconds_of(name) for operator in timed]
    pairs = [
        (theirs, operator.tuned_seconds)
        for theirs, operator in zip(times, timed, strict=True)
        if theirs and operator.tuned_seconds
    ]
    if not pairs or name == TUNED:
        return None
    ratios = [theirs / ours for theirs, ours in pairs]
    if len(timed) == 1:
        return f"{in_ratio(ratios[0])} times as fast as {name} ({in_seconds(pairs[0][0], _FORM)})"
    span = f"{in_ratio(min(ratios))} to {in_ratio(max(ratios))}"
    mean = in_ratio(statistics.geometric_mean(ratios))
    return f"{mean} times as fast as {name} (geometric mean of {len(ratios)}, from {span})"


def _shown(folder: Path) -> str:
    """A folder's path as a user would type it: relative if it lies in the working folder."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith(os.pardir) else relative
