"""``chameleon bench-network`` without clients: seconds of each network, and their ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import click
from chameleon_bench.statistics.estimates import estimate
from chameleon_cli.result_rows import duration
from chameleon_cli.results_table import print_table
from chameleon_core.errors import ConfigError

from chameleon_networks.delivery.side_by_side import SideBySide
from chameleon_networks.frameworks.reduced import AS_IT_COMES
from chameleon_networks.importers.imported_network import ImportedNetwork

OURS = "network"
"""What the delivered network is called."""


def check_names(names: tuple[str, ...], network: ImportedNetwork) -> None:
    """See that frameworks with some names run a network here.

    Raises:
        ConfigError: one does not.
    """
    unknown = [name for name in names if name not in network.frameworks]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} cannot run this network here",
            hint=f"There are: {', '.join(network.frameworks)}.",
        )


def times_of(found: SideBySide) -> dict[str, Any]:
    """Medians and intervals in seconds, and how many times as fast as the best rival it is.

    With several precisions the rival is the best of those in the network's own, and ``ratios``
    has one for each that was asked of them.
    """
    estimates = {name: estimate(seconds) for name, seconds in found.times.items() if seconds}
    medians = {name: one.median for name, one in estimates.items()}
    ratios = _ratios(medians, found.about)
    summary: dict[str, Any] = {
        "contenders": {
            name: {
                "median_seconds": one.median,
                "low_seconds": _known(one.low),
                "high_seconds": _known(one.high),
                "turns": one.of,
                **found.about.get(name, {}),
            }
            for name, one in estimates.items()
        },
        "ratio": _like(ratios, found),
    }
    return {**summary, "ratios": ratios} if found.about else summary


def _known(seconds: float) -> float | None:
    """An end of an interval; None of one turn, which has none."""
    return None if math.isnan(seconds) else seconds


def _like(ratios: Mapping[str, float], found: SideBySide) -> float | None:
    """The ratio to those in the network's own precision; None where none of them is."""
    if not found.about:
        return next(iter(ratios.values()), None)
    own = found.about.get(OURS, {}).get("precisions", ())
    return next((ratio for asked, ratio in ratios.items() if asked in own), None)


def _ratios(
    medians: Mapping[str, float], about: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """How many times as fast as the best rival the network is, by what was asked of the rivals.

    Its own precision comes first, then those as they come.
    """
    ours = medians.get(OURS)
    if ours is None:
        return {}
    groups: dict[str, list[float]] = {}
    for name, seconds in medians.items():
        if name != OURS:
            groups.setdefault(about.get(name, {}).get("asked", ""), []).append(seconds)
    own = about.get(OURS, {}).get("precisions", ())
    order = sorted(groups, key=lambda asked: (asked not in own, asked != AS_IT_COMES))
    return {asked: min(groups[asked]) / ours for asked in order}


def show_times(summary: dict[str, Any]) -> None:
    """Print it."""
    ratios: Mapping[str, float] = summary.get("ratios", {})
    contenders = summary["contenders"].items()
    if ratios:
        order = list(ratios)
        contenders = sorted(
            contenders, key=lambda pair: -1 if pair[0] == OURS else order.index(pair[1]["asked"])
        )
    header: Sequence[str] = ("network", "median", "95 % interval", "turns")
    rows = [
        (
            name,
            duration(one["median_seconds"]),
            "-"
            if one["low_seconds"] is None
            else f"{duration(one['low_seconds'])} - {duration(one['high_seconds'])}",
            str(one["turns"]),
            *((one["precision"], f"{one['max_relative_error']:.1e}") if ratios else ()),
        )
        for name, one in contenders
    ]
    print_table((*header, *(("precision", "error") if ratios else ())), rows)
    for name, why in summary["left_out"].items():
        click.echo(f"{name} left out: {why}")
    for asked, ratio in ratios.items():
        words = "as they come" if asked == AS_IT_COMES else f"in {asked}"
        click.echo(f"{ratio:.2f} times as fast as the best of the others {words}")
    if not ratios and summary["ratio"] is not None:
        click.echo(f"{summary['ratio']:.2f} times as fast as the best of the others")
