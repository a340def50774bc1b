"""What `benchmarks/gpu.py` reads off its searches and comparisons: ratios, shares, goals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CHASED, CHASER = "SA", "AE+AS"
GOAL_SHARE = 1 / 4.45
"""Of SA's time after which AE+AS is to have SA's quality: the paper's headline of 4.45 times."""
GOAL_LAYERS = 0.5
"""Share of the layers on which the vendor's speed is to be reached."""


def figures(
    comparisons: Mapping[str, Mapping[str, Any]],
    searched: Mapping[str, Any],
    *,
    vendor: str,
    rival: str,
) -> dict[str, Any]:
    """Every figure that is derived from something else.

    Args:
        comparisons: by layer ``flop`` and ``sides``: ``owner``, ``seed``, ``variant``,
            ``seconds`` (null where it failed) and ``failure`` of everyone who took part.
        searched: ``report_of`` the suite.
        vendor: owner of the vendor's kernels.
        rival: owner of the other tuner's kernels.
    """
    layers = {
        name: _layer(one["sides"], one["flop"], vendor=vendor, rival=rival)
        for name, one in comparisons.items()
    }
    ablation = caught_up(searched["catching_up"])
    against = {
        other: {name: _summed(layers, name, f"speed_against_{kind}") for name in owners}
        for kind, other in (("vendor", vendor), ("rival", rival))
        for owners in [_owners(layers, {vendor, other})]
    }
    return {
        "layers": layers,
        "against": against,
        "ablation": ablation,
        "goals": _goals(ablation, against[vendor].get(CHASER), vendor),
        "missing": list(_missing(comparisons, searched["pipelines"], vendor)),
    }


def _layer(
    sides: Sequence[Mapping[str, Any]], flop: float, *, vendor: str, rival: str
) -> dict[str, Any]:
    """One layer: of every owner the best kernel of each seed, their median, and ratios of it."""
    best: dict[str, dict[Any, float]] = {}
    for side in sides:
        if side["seconds"] is not None:
            seeds = best.setdefault(side["owner"], {})
            seeds[side["seed"]] = min(side["seconds"], seeds.get(side["seed"], math.inf))
    times = {owner: statistics.median(seeds.values()) for owner, seeds in best.items()}
    return {
        owner: {
            "seconds": seconds,
            "seconds_by_seed": list(best[owner].values()),
            "gflops": flop / seconds / 1e9,
            "speed_against_vendor": _ratio(times.get(vendor), seconds),
            "speed_against_rival": _ratio(times.get(rival), seconds),
        }
        for owner, seconds in times.items()
    }


def _ratio(other: float | None, seconds: float) -> float | None:
    return None if other is None else other / seconds


def _owners(layers: Mapping[str, Mapping[str, Any]], without: set[str]) -> list[str]:
    return [o for o in dict.fromkeys(o for one in layers.values() for o in one) if o not in without]


def _summed(layers: Mapping[str, Mapping[str, Any]], owner: str, what: str) -> dict[str, Any]:
    """A pipeline's speed against somebody's over all layers on which both have a kernel."""
    ratios = [one[owner][what] for one in layers.values() if owner in one]
    known = [ratio for ratio in ratios if ratio is not None]
    fast = sum(ratio >= 1.0 for ratio in known)
    return {
        "layers": len(known),
        "at_least_as_fast": fast,
        "share": fast / len(known) if known else None,
        "geometric_mean": statistics.geometric_mean(known) if known else None,
    }


def caught_up(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """For every pipeline, after what share of SA's time it had SA's final quality.

    Args:
        rows: ``catching_up`` of a suite's report.

    Returns:
        By pipeline the share of each layer (the median over seeds, null where it was not reached
        by most), the layers on which it was not, and the geometric mean of the others.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["reaches"] != CHASED:
            continue
        if row["share_of_seconds"] is not None:
            median = row["share_of_seconds"]["median"]
            found.setdefault(row["pipeline"], {})[row["task"]] = median
    made = {}
    for pipeline, shares in found.items():
        known = [share for share in shares.values() if share]
        made[pipeline] = {
            "share_of_seconds": shares,
            "never": [layer for layer, share in shares.items() if share is None],
            "geometric_mean": statistics.geometric_mean(known) if known else None,
        }
    return made


def _goals(
    ablation: Mapping[str, Any], against: Mapping[str, Any] | None, vendor: str
) -> list[dict[str, Any]]:
    chased = ablation.get(CHASER)
    mean = None if chased is None else chased["geometric_mean"]
    if chased is None or (mean is None and not chased["never"]):
        reached, told = None, "not measured"
    else:
        reached = mean is not None and not chased["never"] and mean <= GOAL_SHARE
        never = f", never on {', '.join(chased['never'])}" if chased["never"] else ""
        told = ("never" if mean is None else f"after {mean:.3f} of it") + never
    share = None if against is None else against["share"]
    return [
        {
            "goal": f"{CHASER} has {CHASED}'s quality after {GOAL_SHARE:.3f} of its time",
            "value": mean,
            "met": reached,
            "verdict": told,
        },
        {
            "goal": f"{CHASER} is at least as fast as {vendor} on {GOAL_LAYERS:.0%} of the layers",
            "value": share,
            "met": None if share is None else share >= GOAL_LAYERS,
            "verdict": "not measured" if share is None else f"on {share:.0%}",
        },
    ]


def _missing(
    comparisons: Mapping[str, Mapping[str, Any]], pipelines: Iterable[str], vendor: str
) -> Iterable[str]:
    """A sentence for everyone who has no kernel of a layer, with the reason where it is known."""
    for layer, one in comparisons.items():
        for owner in (vendor, *pipelines):
            mine = [side for side in one["sides"] if side["owner"] == owner]
            if any(side["seconds"] is not None for side in mine):
                continue
            reasons = dict.fromkeys(side["failure"] for side in mine)
            yield f"{owner} on {layer}: {'; '.join(reasons) or 'no search found a kernel'}"
