"""The command ``chameleon compare``, which compares runs with each other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
from chameleon_cli.api import duration, print_table, trust_option
from chameleon_core.api import Registry
from chameleon_core.plugin_api import ExitCode, PluginError, RunFolderError, load_factory

from chameleon_bench._runs.comparison import comparison_of
from chameleon_bench._statistics.margins import margin_of

Row = Mapping[str, Any]

_SIGNIFICANT = 0.05
_LONGEST = 60
"""The number of characters to which a value of a pipeline is cut."""


@click.command("compare", epilog="Example: chameleon compare runs/a runs/b")
@click.argument("folders", metavar="RUN RUN...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--fail-if-slower",
    metavar="PERCENT",
    help="Exit with 5 if the second run's network is slower by more, with 6 if undecided.",
)
@click.option(
    "--recorded", is_flag=True, help="Judge by the times of the runs, and time nothing now."
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    context: click.Context,
    folders: tuple[Path, ...],
    *,
    fail_if_slower: str | None,
    recorded: bool,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Compare runs: times with intervals, a paired test, and differences of pipelines and machines.

    Times are medians with 95 % intervals over repeats. They come from the final comparison if a run
    made one, otherwise from the search. A ratio is the first run's time over the other run's, so
    above 1 the other run is faster. Operators of two runs are the same if they compute the same
    function, also for different targets.

    With --fail-if-slower, the delivered networks of two runs are timed now, side by side, as by
    `bench-network NEW --against OLD`. With --recorded, the times that the runs recorded decide.
    They may have been taken in different hours, so neighbours of the machine count as well.
    """
    if len(folders) < 2:  # noqa: PLR2004 - a single run cannot be compared
        raise click.UsageError("name two run folders or more")
    if fail_if_slower is not None and len(folders) > 2:  # noqa: PLR2004 - old and new
        raise click.UsageError("name an old and a new run folder with --fail-if-slower")
    margin = margin_of(fail_if_slower)
    if fail_if_slower is not None and not recorded:
        old, new = folders
        asked = {"folder": new, "against": str(old), "fail_if_slower": fail_if_slower}
        gate = _gate_command()
        context.invoke(gate, **asked, trust_source=trust_source, as_json=as_json)
    comparison = comparison_of(folders)
    answer = _recorded(comparison["pairs"][0], margin) if fail_if_slower is not None else None
    if as_json:
        gates = {} if answer is None else {"gate": answer}
        click.echo(json.dumps({**comparison, **gates}))
    else:
        _print(comparison)
    if answer is not None:
        if not as_json:
            click.echo(f"\n{answer['verdict']}: {answer['reason']}")
        sys.exit(_EXIT_CODES[answer["verdict"]])


_EXIT_CODES = {
    "not slower": ExitCode.OK,
    "slower": ExitCode.THRESHOLD_MISSED,
    "undecided": ExitCode.UNDECIDED,
}


def _gate_command() -> click.Command:
    """The command that times two delivered networks, which belongs to another package."""
    registry = Registry.default()
    if "bench-network" not in registry.names("commands"):
        raise PluginError(
            "no installed package times networks",
            hint="Install chameleon-tuner-networks, or add --recorded.",
        )
    return cast("click.Command", load_factory(registry.record("commands", "bench-network").factory))


def _recorded(pair: Row, margin: float) -> Row:
    """The answer whether the second run is slower, from the times that both runs recorded.

    A network has one recorded median and no interval, so its ratio alone decides.
    """
    names = ("network",) * 3 if pair["network"] else ("ratio", "low", "high")
    ratio, low, high = (pair[name] for name in names)
    if ratio is None:
        raise RunFolderError(
            "the runs have no network and no operator that both timed",
            hint="Name two runs of the same model.",
        )
    verdict = "undecided"
    if 1.0 / (high or ratio) > 1.0 + margin:
        verdict = "slower"
    elif 1.0 / (low or ratio) < 1.0 + margin:
        verdict = "not slower"
    which = "its network" if pair["network"] else "the geometric mean of its operators"
    reason = (
        f"{which} takes {1.0 / ratio:.3f} times the time of {pair['first']}, and {margin:.1%} more "
        "are allowed. These times were recorded, and not taken side by side"
    )
    return {"verdict": verdict, "reason": reason, "ratio": 1.0 / ratio}


def _print(comparison: Row) -> None:
    """Print the tables of a comparison."""
    _print_runs(comparison["runs"])
    _print_times(comparison)
    for pair in comparison["pairs"]:
        _print_pair(pair)
    for what in _TITLES:
        _print_differences(what, comparison)
    if comparison["machines_differ"]:
        click.echo(
            "warning: these runs were made on different machines or with other threads; their "
            "times are not comparable",
            err=True,
        )


def _print_runs(runs: Sequence[Row]) -> None:
    sources = {"comparison": "comparison", "search": "sum of operators"}
    rows = []
    for run in runs:
        network = run["network"] or {"seconds": None, "seconds_from": ""}
        source = sources[network["seconds_from"]] if network["seconds"] else "-"
        facts = (run["name"], run["state"], str(run["measurements"]), f"{run['seconds']:.1f}")
        rows.append((*facts, duration(network["seconds"]), source))
    print_table(("run", "state", "measurements", "seconds", "network", "from"), rows)


def _print_times(comparison: Row) -> None:
    names = [run["name"] for run in comparison["runs"]]
    operators = [(operator["name"], operator["times"]) for operator in comparison["operators"]]
    rows = [(name, *(_time(times.get(run)) for run in names)) for name, times in operators]
    total = comparison["sum"]
    if total["operators"] > 1:
        cells = [_interval(total["times"][name], "seconds", duration) for name in names]
        rows.append((f"sum of {total['operators']}, as often as in {names[0]}", *cells))
    if not rows:
        return
    click.echo()
    print_table(("time", *names), rows)
    if any(time["seconds_from"] == "search" for _, times in operators for time in times.values()):
        click.echo(
            "*: from the search, where the fastest of many is partly luck; others are from the "
            "final comparison"
        )
    click.echo()
    rows = [(name, *(_spent(times.get(run)) for run in names)) for name, times in operators]
    print_table(("measurements and seconds", *names), rows)


def _print_pair(pair: Row) -> None:
    first, second = pair["first"], pair["second"]
    click.echo(f"\n{first} / {second} (above 1: {second} is faster)")
    rows = [
        (
            operator["name"],
            _interval(operator, "ratio", "{:.3f}".format),
            *(_count(operator[f"{side}_measurements_to_goal"]) for side in ("first", "second")),
        )
        for operator in pair["operators"]
    ]
    if len(rows) > 1:
        mean = _interval(pair, "ratio", "{:.3f}".format)
        rows.append((f"geometric mean of {pair['tasks']}", mean, "", ""))
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


def _test(pair: Row) -> str:
    """The result of the paired test as a sentence."""
    if pair["p"] is None:
        return "paired test: it needs two operators or more that both runs tune"
    count = len(pair["operators"])
    line = f"paired test over {count} operators (Wilcoxon's signed ranks): p = {pair['p_holm']:.3g}"
    if pair["p_holm"] < _SIGNIFICANT:
        return f"{line}; they differ"
    if pair["least_p"] >= _SIGNIFICANT:
        return f"{line}; with so few operators it cannot be below {pair['least_p']:.3g}"
    return f"{line}; no difference is shown"


_TITLES = {
    "pipeline": "pipelines, with every default written out",
    "versions": "versions",
    "environment": "machine and runner",
}


def _print_differences(what: str, differences: Row) -> None:
    differing = differences[what]
    if not differing:
        click.echo(f"\n{_TITLES[what]}: no difference")
        return
    click.echo()
    names = [run["name"] for run in differences["runs"]]
    rows = [(key, *(_shown(values[name]) for name in names)) for key, values in differing.items()]
    print_table((_TITLES[what], *names), rows)


def _time(value: Row | None) -> str:
    if value is None or value["seconds"] is None:
        return "-"
    mark = "*" if value["seconds_from"] == "search" else ""
    return _interval(value, "seconds", duration) + mark


def _shown(value: Any) -> str:
    """A value in a table's cell, cut if it is long; ``--json`` prints it in full."""
    text = "not set" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _spent(value: Row | None) -> str:
    return "-" if value is None else f"{value['measurements']} in {value['wall_seconds']:.1f} s"


def _interval(value: Row, key: str, form: Callable[[float], str]) -> str:
    if value[key] is None or value["low"] is None:
        return "-" if value[key] is None else form(value[key])
    return f"{form(value[key])} ({form(value['low'])} to {form(value['high'])})"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
