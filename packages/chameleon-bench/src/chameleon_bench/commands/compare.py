"""``chameleon compare``: runs against each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from chameleon_cli.result_rows import duration
from chameleon_cli.results_table import print_table

_SIGNIFICANT = 0.05
_LONGEST = 60
"""A value of a pipeline is cut to so many characters."""


@click.command("compare")
@click.argument("folders", metavar="RUN RUN...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folders: tuple[Path, ...], as_json: bool) -> None:
    """Compare runs: times with intervals, a paired test, what differs beside them.

    Times are medians with 95 % intervals of their repeats: of the final comparison where a run
    made one, otherwise of the search. Ratios are the first run's time over the other's, so above 1
    the other is faster. Operators are the same where they compute the same, whatever the target.
    """
    from chameleon_bench.runs.comparison import comparison_of  # noqa: PLC0415 - --help is quick

    if len(folders) < 2:  # noqa: PLR2004 - there is nothing to compare one with
        raise click.UsageError("name two run folders or more")
    found = comparison_of(folders)
    if as_json:
        click.echo(json.dumps(found))
        return
    _print_runs(found)
    _print_times(found)
    for pair in found["pairs"]:
        _print_pair(pair)
    for what in ("pipeline", "versions", "environment"):
        _print_differences(what, found)
    if found["machines_differ"]:
        click.echo(
            "warning: these runs were made on different machines or with other threads; their "
            "times are not comparable",
            err=True,
        )


def _print_runs(found: Mapping[str, Any]) -> None:
    rows = []
    for one in found["runs"]:
        network = one["network"] or {}
        source = {"comparison": "comparison", "search": "sum of operators"}
        rows.append(
            (
                one["name"],
                one["state"],
                str(one["measurements"]),
                f"{one['seconds']:.1f}",
                duration(network.get("seconds")),
                source[network["seconds_from"]] if network.get("seconds") else "-",
            )
        )
    print_table(("run", "state", "measurements", "seconds", "network", "from"), rows)


def _print_times(found: Mapping[str, Any]) -> None:
    names = [one["name"] for one in found["runs"]]
    rows = [
        (operator["name"], *(_time(operator["times"].get(name)) for name in names))
        for operator in found["operators"]
    ]
    total = found["sum"]
    if total["operators"] > 1:
        cells = [_interval(total["times"][name], duration) for name in names]
        rows.append((f"sum of {total['operators']}, as often as in {names[0]}", *cells))
    if not rows:
        return
    click.echo()
    print_table(("time", *names), rows)
    times = [time for operator in found["operators"] for time in operator["times"].values()]
    if any(one["seconds_from"] == "search" for one in times):
        click.echo(
            "*: from the search, where the fastest of many is partly luck; others are from the "
            "final comparison"
        )
    click.echo()
    rows = [
        (operator["name"], *(_spent(operator["times"].get(name)) for name in names))
        for operator in found["operators"]
    ]
    print_table(("measurements and seconds", *names), rows)


def _print_pair(pair: Mapping[str, Any]) -> None:
    first, second = pair["first"], pair["second"]
    click.echo(f"\n{first} / {second} (above 1: {second} is faster)")
    rows = [
        (
            one["name"],
            _ratio(one),
            _count(one["first_measurements_to_goal"]),
            _count(one["second_measurements_to_goal"]),
        )
        for one in pair["operators"]
    ]
    if len(rows) > 1:
        rows.append((f"geometric mean of {pair['tasks']}", _ratio(pair), "", ""))
    if rows:
        header = ("operator", "ratio", f"measurements, {first}", f"measurements, {second}")
        print_table(header, rows)
        click.echo("measurements: until it was as fast as the slower of both searches ended")
    if pair["network"] is not None:
        models = "" if pair["same_model"] else "; their sections 'model' differ, see below"
        click.echo(f"network: {pair['network']:.3f} (one median of each: no interval{models})")
    click.echo(_test(pair))
    if pair["left_out"]:
        click.echo(f"without a time in one of them: {', '.join(pair['left_out'])}")
    if pair["mixed_sources"]:
        click.echo(
            "from the search in one run and from the comparison in the other, so that a small "
            f"difference says nothing: {', '.join(pair['mixed_sources'])}"
        )


def _test(pair: Mapping[str, Any]) -> str:
    """The paired test in words."""
    if pair["p"] is None:
        return "paired test: it needs two operators or more that both runs tune"
    count = len(pair["operators"])
    told = f"paired test over {count} operators (Wilcoxon's signed ranks): p = {pair['p_holm']:.3g}"
    if pair["p_holm"] < _SIGNIFICANT:
        return f"{told}; they differ"
    if pair["least_p"] >= _SIGNIFICANT:
        return f"{told}; with so few operators it cannot be below {pair['least_p']:.3g}"
    return f"{told}; no difference is shown"


def _print_differences(what: str, found: Mapping[str, Any]) -> None:
    titles = {
        "pipeline": "pipelines, with every default written out",
        "versions": "versions",
        "environment": "machine and runner",
    }
    differing = found[what]
    if not differing:
        click.echo(f"\n{titles[what]}: no difference")
        return
    click.echo()
    names = [one["name"] for one in found["runs"]]
    rows = [(key, *(_shown(values[name]) for name in names)) for key, values in differing.items()]
    print_table((titles[what], *names), rows)


def _time(value: Mapping[str, Any] | None) -> str:
    if value is None or value["seconds"] is None:
        return "-"
    mark = "*" if value["seconds_from"] == "search" else ""
    return _interval(value, duration) + mark


def _shown(value: Any) -> str:
    """A value in a table's cell; ``--json`` has it in full."""
    told = "not set" if value is None else str(value)
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"


def _spent(value: Mapping[str, Any] | None) -> str:
    return "-" if value is None else f"{value['measurements']} in {value['wall_seconds']:.1f} s"


def _interval(value: Mapping[str, Any], form: Any) -> str:
    if value["seconds"] is None:
        return "-"
    if value["low"] is None:
        return str(form(value["seconds"]))
    return f"{form(value['seconds'])} ({form(value['low'])} to {form(value['high'])})"


def _ratio(value: Mapping[str, Any]) -> str:
    if value["ratio"] is None:
        return "-"
    if value["low"] is None:
        return f"{value['ratio']:.3f}"
    return f"{value['ratio']:.3f} ({value['low']:.3f} to {value['high']:.3f})"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
