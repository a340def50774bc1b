"""``chameleon bench-network``: a delivered network against whatever else runs it here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from chameleon_cli.options import trust_option

from chameleon_networks.commands.streams import MOST, rivals_of, show, stream_numbers, summary_of
from chameleon_networks.frameworks.reduced import AS_IT_COMES, PRECISIONS

if TYPE_CHECKING:
    from chameleon_networks.delivery.reduced_rivals import ReducedRequest
    from chameleon_networks.delivery.side_by_side import SideBySide
    from chameleon_networks.importers.imported_network import ImportedNetwork
    from chameleon_networks.running.verify import Run

OURS = "network"
_FAILED = "it does not run here; the log above says why"


@click.command("bench-network")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    help="Turns of each contender: 15 of at least 0.15 s, or 5 of --seconds with --streams.",
)
@click.option(
    "--rivals", help="Those to compare with, with commas; all that are installed if none."
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(PRECISIONS),
    help="Compare with those in this precision, too, and show all errors; may be repeated.",
)
@click.option(
    "--calibrate",
    metavar="FILE:FUNCTION",
    help="What yields inputs to calibrate with; the run's own, or random ones, if none.",
)
@click.option(
    "--streams",
    multiple=True,
    metavar="N",
    help="Have so many clients call it at once, and count requests; may be 1,2,4 or repeated.",
)
@click.option(
    "--neighbours",
    type=click.IntRange(min=0, max=MOST),
    default=0,
    help="Have so many busy processes run beside every contender, as with --streams 1.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long a turn is with --streams or --neighbours.",
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    folder: Path,
    *,
    rounds: int | None,
    rivals: str | None,
    precisions: tuple[str, ...],
    calibrate: str | None,
    streams: tuple[str, ...],
    neighbours: int,
    seconds: float,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Time the delivered network of folder RUN against torch, onnxruntime and others.

    Every contender has a process of its own, started as users start it; their turns are
    interleaved. Shown are medians over the turns with 95 % bootstrap intervals. A network in
    buckets of shapes is timed in each.

    With --precision others run it in int8, bfloat16 or float16, too, each quantized by its own
    means and calibrated with the same inputs, or as they come. Every error is the largest
    difference to the framework's answers in float32, over the largest of those, on other inputs.

    With --streams or --neighbours every turn is a fresh process, whose threads call one loaded
    network at the same time. Shown are requests a second and quantiles of the latency, as medians
    over the turns. OpenVINO and onnxruntime have the better of two ways to serve several clients.

    The delivered network is a program and is run. If the model or `calibrate` of the run is Python
    of yours, --trust-source is needed.
    """
    from chameleon_cli.streams import results_alone  # noqa: PLC0415 - --help is quick
    from chameleon_core.errors import ConfigError, RunFolderError  # noqa: PLC0415
    from chameleon_core.run_folder import NETWORK, read_store  # noqa: PLC0415

    from chameleon_networks.commands.runs import network_of, pipeline_of, threads_of  # noqa: PLC0415
    from chameleon_networks.delivery.bucketed import BucketedFrontend  # noqa: PLC0415
    from chameleon_networks.delivery.side_by_side import Compared, side_by_side  # noqa: PLC0415
    from chameleon_networks.serving.streams import Served  # noqa: PLC0415

    if calibrate is not None and not precisions:
        raise ConfigError(
            "--calibrate is for networks in reduced precision, and --precision names none",
            hint="Add --precision int8.",
        )
    clients = stream_numbers(streams) if streams or neighbours else ()
    with results_alone():
        with read_store(folder) as store:
            frontend = network_of(pipeline_of(store, folder, trust_source=trust_source), store)
            threads = threads_of(store)
        delivered = folder / NETWORK
        if not delivered.is_dir():
            raise RunFolderError(
                f"no network was delivered in {folder}",
                hint=f"Try `chameleon compile {folder}`; it says what is wrong.",
            )
        if isinstance(frontend, BucketedFrontend):
            frontends = {bucket.name: one for bucket, one in frontend.networks}
        else:
            frontends = {"": frontend}
        summaries = {}
        for bucket, one in frontends.items():
            network, source = one.network, calibrate or one.calibrate
            given = None if rivals is None else [one.strip() for one in rivals.split(",")]
            if clients:
                served = Served(
                    network=network,
                    ours=OURS,
                    folder=delivered,
                    bucket=bucket,
                    names=rivals_of(network, given),
                    precisions=precisions,
                    calibrate=source,
                    streams=clients,
                    neighbours=neighbours,
                    threads=threads,
                    rounds=rounds or 5,
                    seconds=seconds,
                )
                summaries[bucket] = summary_of(served, all_rivals=given is None)
                continue
            names = network.frameworks if given is None else tuple(given)
            _check(names, network)
            asked = Compared(
                network=network,
                ours={OURS: delivered},
                bucket=bucket,
                names=names,
                reduced=_reduced(network, precisions, source) if precisions else None,
                threads=threads,
                rounds=rounds or 15,
            )
            found = side_by_side(asked)
            absent = {} if rivals is not None else dict(network.left_out)
            failed = {name: _FAILED for name in names if not found.times.get(name)}
            summaries[bucket] = {
                **_summary(found),
                "left_out": absent | (dict(found.left_out) if precisions else failed),
            }
    about = {"run": str(folder.absolute()), "threads": threads, "neighbours": neighbours}
    if as_json:
        alone = summaries.get("")
        click.echo(json.dumps(about | ({"buckets": summaries} if alone is None else alone)))
        return
    for bucket, summary in summaries.items():
        if bucket:
            click.echo(f"bucket {bucket}")
        if clients:
            show(summary, neighbours)
        else:
            _show(summary)


def _check(names: tuple[str, ...], network: ImportedNetwork) -> None:
    from chameleon_core.errors import ConfigError  # noqa: PLC0415

    unknown = [name for name in names if name not in network.frameworks]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} cannot run this network here",
            hint=f"There are: {', '.join(network.frameworks)}.",
        )


def _reduced(
    network: ImportedNetwork, precisions: Sequence[str], source: str | None
) -> Callable[[Run], ReducedRequest]:
    from chameleon_networks.delivery.typed.comparing import reduced_request  # noqa: PLC0415 - needs TVM

    return partial(reduced_request, network, precisions, source)


def _summary(found: SideBySide) -> dict[str, Any]:
    """Medians and intervals in seconds, and how many times as fast as the best rival it is.

    With several precisions the rival is the best of those in the network's own, and ``ratios``
    has one for each that was asked of them.
    """
    from chameleon_bench.statistics.estimates import estimate  # noqa: PLC0415

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
    from chameleon_core.loop.end.rivals import alike  # noqa: PLC0415

    if not found.about:
        return next(iter(ratios.values()), None)
    own = str(found.about.get(OURS, {}).get("precision", ""))
    return next((ratio for asked, ratio in ratios.items() if alike(own, asked)), None)


def _ratios(
    medians: Mapping[str, float], about: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """How many times as fast as the best rival the network is, by what was asked of the rivals.

    Its own precision comes first, then those as they come.
    """
    from chameleon_core.loop.end.rivals import alike  # noqa: PLC0415

    ours = medians.get(OURS)
    if ours is None:
        return {}
    groups: dict[str, list[float]] = {}
    for name, seconds in medians.items():
        if name != OURS:
            groups.setdefault(about.get(name, {}).get("asked", ""), []).append(seconds)
    own = str(about.get(OURS, {}).get("precision", ""))
    order = sorted(groups, key=lambda asked: (not alike(own, asked), asked != AS_IT_COMES))
    return {asked: min(groups[asked]) / ours for asked in order}


def _show(summary: dict[str, Any]) -> None:
    from chameleon_cli.results_table import duration, print_table  # noqa: PLC0415

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
