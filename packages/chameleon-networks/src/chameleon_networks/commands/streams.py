"""What ``chameleon bench-network`` does with ``--streams`` and ``--neighbours``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from chameleon_cli.result_rows import duration
from chameleon_cli.results_table import print_table
from chameleon_core.errors import ConfigError
from chameleon_core.words import counted

from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.serving.model_files import FRAMEWORKS
from chameleon_networks.serving.streams import Served, served

HEADER = ("network", "precision", "requests/s", "p50", "p90", "p99", "turns", "best way")


def rivals_of(network: ImportedNetwork, given: Sequence[str] | None) -> tuple[str, ...]:
    """Those that are called in float32 beside the delivered network.

    Raises:
        ConfigError: one that was named cannot be.
    """
    names = tuple(name for name in network.frameworks if name in FRAMEWORKS)
    unknown = [name for name in given or () if name not in names]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} cannot be compared with --streams or --neighbours here",
            hint=f"There are: {', '.join(names) or 'none'}.",
        )
    return names if given is None else tuple(given)


def summary_of(asked: Served, *, all_rivals: bool) -> dict[str, Any]:
    """What came of it, with the ratios of requests a second by the precision of the others.

    Args:
        asked: who is called.
        all_rivals: whether the user named none, so that what is not installed is left out.
    """
    figures, left_out = served(asked)
    absent = dict(asked.network.left_out) if all_rivals else {}
    return {
        "streams": {
            str(streams): {"contenders": found, "ratios": _ratios(asked.ours, found)}
            for streams, found in figures.items()
        },
        "left_out": absent | left_out,
    }


def _ratios(ours: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, one in found.items():
        if name != ours:
            groups.setdefault(one["asked"], []).append(one["requests_per_second"])
    own = found[ours]["requests_per_second"]
    return {asked: own / max(others) for asked, others in groups.items()}


def show(summary: Mapping[str, Any], neighbours: int) -> None:
    """Print it."""
    beside = f", {counted(neighbours, 'busy neighbour')}" if neighbours else ""
    for streams, found in summary["streams"].items():
        click.echo(f"{counted(int(streams), 'client')}{beside}")
        rows = [
            (
                name,
                one["precision"],
                f"{one['requests_per_second']:.1f}",
                *(duration(one[f"p{quantile}_seconds"]) for quantile in (50, 90, 99)),
                str(one["turns"]),
                one["way"] or "-",
            )
            for name, one in found["contenders"].items()
        ]
        print_table(HEADER, rows)
        for asked, ratio in found["ratios"].items():
            click.echo(
                f"{ratio:.2f} times as many requests a second as the best of the others in {asked}"
            )
    for name, why in summary["left_out"].items():
        click.echo(f"{name} left out: {why}")
